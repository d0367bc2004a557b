"""How the feed-forward and layer normalisation usually go wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

FED = "self.outer(self.inner(x).relu())"
MEAN = "x.mean(-1, keepdim=True)"
CENTRED = "x - x.mean(-1, keepdim=True)"
VARIANCE = "(centred * centred).mean(-1, keepdim=True)"
ROOT = "torch.sqrt(variance + 1e-5)"
LAST = f"centred / {ROOT} * self.weight + self.bias"

Findings = Mapping[str, dict[str, Any]]
BEND = r"relu|ReLU|gelu|silu|tanh|sigmoid|clamp|max|activation|outer\("
CUT = r"detach|data|no_grad|item\(|tensor\("
AXIS = r"mean|var|std|dim|sum"


def fed(id: str, say: str, new: str, where: str = BEND) -> Mistake:
    return Mistake(id, "FeedForward", say, changes=((FED, new),), where=where)


def norm(id: str, say: str, *changes: tuple[str, str], where: str = r"sqrt|std|\bvar\b|eps|1e-") -> Mistake:
    return Mistake(id, "LayerNorm", say, changes=changes, where=where)


def shown(id: str, part: str, say: str, finding: str, score: float, key: str = "", where: str = "") -> Mistake:
    def fits(findings: Findings) -> float:
        return score if finding in findings and (not key or findings[finding].get(key)) else 0.0

    return Mistake(id, part, say, where=where, fits=fits)


def unused(part: str, name: str, say: str) -> Mistake:
    def fits(findings: Findings) -> float:
        return 0.85 if name in findings.get("parameters.unused", {}).get("parameters", []) else 0.0

    return Mistake("unused-parameters", part, say, where=r"return", fits=fits)


def bend(name: str, code: str) -> Mistake:
    return fed("activation-variant", f"the bend is {name}; here it is ReLU", f"self.outer({code})")


def over(dims: str, say: str) -> Mistake:
    return norm(
        "norm-axis",
        say,
        (MEAN, f"x.mean({dims}, keepdim=True)"),
        (VARIANCE, f"(centred * centred).mean({dims}, keepdim=True)"),
        where=AXIS,
    )


def epsilon(said: str, code: str) -> Mistake:
    return norm("norm-epsilon", f"ε is {said}, not 1e-5: it shows where the variance is small", (ROOT, code))


UNBIASED = "the variance was divided by D - 1, not D (torch.var and torch.std do so unless told otherwise)"
OUTSIDE = "ε was added to the root; it belongs under it, which shows where the variance is small"
SQUARED = "centred.pow(2).sum(-1, keepdim=True) / max(x.size(-1) - 1, 1)"
FLOW = "the values are right, but gradients must flow through {} too: it was detached"
FUNCTION: Callable[[str], str] = "nn.functional.{}(self.inner(x))".format

MISTAKES = (
    fed(
        "activation-missing",
        "no bend between the two maps: together they are one linear map",
        "self.outer(self.inner(x))",
    ),
    fed(
        "bias-place",
        "the first bias came after the bend: it belongs to the map, before what is negative is cut off",
        "self.outer((self.inner(x) - self.inner.bias).relu() + self.inner.bias)",
        where=r"bias|\+",
    ),
    shown(
        "activation-missing",
        "FeedForward",
        "the whole is one linear map: there is no bend in it",
        "bend.missing",
        0.9,
        where=BEND,
    ),
    fed(
        "activation-last",
        "the bend came last: the output is never negative; it belongs between the maps",
        "self.outer(self.inner(x)).relu()",
    ),
    fed("activation-last", "there is a second bend at the end: the output is never negative", FED + ".relu()"),
    fed("activation-first", "the bend came first: it belongs between the two maps", "self.outer(self.inner(x.relu()))"),
    bend("GELU", FUNCTION("gelu")),
    bend("GELU, by its tanh", "nn.functional.gelu(self.inner(x), approximate='tanh')"),
    bend("SiLU (swish)", FUNCTION("silu")),
    bend("a leaky ReLU", FUNCTION("leaky_relu")),
    bend("a leaky ReLU", "nn.functional.leaky_relu(self.inner(x), 0.1)"),
    bend("ELU", FUNCTION("elu")),
    bend("ReLU up to 6", FUNCTION("relu6")),
    bend("softplus", FUNCTION("softplus")),
    bend("tanh", "self.inner(x).tanh()"),
    bend("a sigmoid", "self.inner(x).sigmoid()"),
    bend("a softmax", "self.inner(x).softmax(-1)"),
    bend("an absolute value", "self.inner(x).abs()"),
    bend("a squared ReLU", "self.inner(x).relu() ** 2"),
    shown("activation-variant", "FeedForward", "the bend is another than ReLU", "layers.bend", 0.7, where=BEND),
    fed("activation-inverted", "what is positive was cut off: ReLU keeps it", "self.outer(self.inner(x).clamp(max=0))"),
    fed("activation-inverted", "ReLU cuts at zero, not at one", "self.outer(self.inner(x).clamp(min=1))"),
    fed("residual-unasked", "x was added: that road is built in exercise 9", FED + " + x", r"\+"),
    fed(
        "unused-parameters",
        "the bias of `inner` is not added",
        "self.outer((x @ self.inner.weight.T).relu())",
        r"inner\.",
    ),
    fed(
        "unused-parameters",
        "the bias of `outer` is not added",
        "self.inner(x).relu() @ self.outer.weight.T",
        r"outer[.(]",
    ),
    fed(
        "unused-parameters",
        "no bias is added",
        "(x @ self.inner.weight.T).relu() @ self.outer.weight.T",
        r"weight",
    ),
    *(
        unused("FeedForward", name, f"`{name}` is never used")
        for name in ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
    ),
    fed(
        "half-done",
        "this is the wider layer: the way back through `outer` is missing",
        "self.inner(x).relu()",
        r"return",
    ),
    fed(
        "order-swapped",
        "`inner` comes first: it widens, and `outer` narrows",
        "self.inner(self.outer(x).relu())",
        r"outer[.(]",
    ),
    fed(
        "dropout-in-eval",
        "dropout acts: there is none here",
        "self.outer(nn.functional.dropout(self.inner(x).relu()))",
        r"dropout",
    ),
    fed(
        "dropout-in-eval",
        "dropout acts: there is none here",
        "self.outer(nn.functional.dropout(self.inner(x).relu(), 0.1))",
        r"dropout",
    ),
    fed(
        "norm-unasked",
        "the result was normalised: that comes later",
        f"nn.functional.layer_norm({FED}, x.shape[-1:])",
        r"norm",
    ),
    fed(
        "detached",
        "the values are right, but nothing flows back through the bend",
        "self.outer(self.inner(x).relu().detach())",
        CUT,
    ),
    fed("detached", "the values are right, but the result was cut off from everything", FED + ".detach()", CUT),
    fed(
        "detached",
        "the values are right, but nothing flows back to x",
        "self.outer(self.inner(x.detach()).relu())",
        CUT,
    ),
    Mistake(
        "weights-mismatch",
        "FeedForward",
        "the constructor was changed: parameters keep their names and shapes",
        changes=(("nn.Linear(width, hidden)", "nn.Linear(width, hidden, bias=False)"),),
        where=r"Linear",
    ),
    # ---- LayerNorm
    norm("norm-epsilon", UNBIASED, (VARIANCE, SQUARED)),
    norm("norm-epsilon", OUTSIDE, (ROOT, "(torch.sqrt(variance) + 1e-5)")),
    norm("norm-epsilon", f"{UNBIASED}, and {OUTSIDE}", (VARIANCE, SQUARED), (ROOT, "(torch.sqrt(variance) + 1e-5)")),
    norm("norm-epsilon", f"{UNBIASED}, and ε is 1e-6", (VARIANCE, SQUARED), (ROOT, "(torch.sqrt(variance) + 1e-6)")),
    norm("norm-epsilon", "ε is missing: a token of equal features gives 0/0", (ROOT, "torch.sqrt(variance)")),
    epsilon("1e-6", "torch.sqrt(variance + 1e-6)"),
    epsilon("1e-8", "torch.sqrt(variance + 1e-8)"),
    epsilon("1e-12", "torch.sqrt(variance + 1e-12)"),
    epsilon("1e-3", "torch.sqrt(variance + 1e-3)"),
    epsilon("squared", "torch.sqrt(variance + 1e-10)"),
    epsilon("1e-6, and beside the root", "(torch.sqrt(variance) + 1e-6)"),
    norm("norm-epsilon", "ε is added, not a least value", (ROOT, "torch.sqrt(variance.clamp(min=1e-5))")),
    norm("norm-epsilon", "ε is subtracted", (ROOT, "torch.sqrt((variance - 1e-5).abs())")),
    over("1", "mean and variance ran over the tokens: each token is normalised by itself, over its features"),
    over("0", "mean and variance ran over the batch: each token is normalised by itself, over its features"),
    over("(1, 2)", "mean and variance ran over tokens and features: each token is normalised by itself"),
    over("(0, 1)", "mean and variance ran over batch and tokens, as a batch norm: each token is normalised by itself"),
    over("(0, 1, 2)", "one mean and variance for everything: each token is normalised by itself"),
    shown(
        "norm-axis",
        "LayerNorm",
        "a token's result changes with its company: over its own features only",
        "layers.company",
        0.75,
        where=AXIS,
    ),
    norm("root-missing", "divided by the variance: its root is the deviation", (ROOT, "(variance + 1e-5)")),
    norm(
        "mean-missing",
        "the mean is not subtracted: the root mean square alone is another norm",
        (CENTRED, "x"),
        where=r"mean|/",
    ),
    norm(
        "mean-missing",
        "the mean is not subtracted above the line",
        (LAST, LAST.replace("centred", "x", 1)),
        where=r"/|rsqrt",
    ),
    shown(
        "moments",
        "LayerNorm",
        "with gain 1 and shift 0 the mean is not 0, or the variance not 1",
        "layers.moments",
        0.6,
        where=AXIS,
    ),
    norm("unused-parameters", "the gain `weight` is not used", (" * self.weight", ""), where=r"return"),
    norm("unused-parameters", "the shift `bias` is not used", (" + self.bias", ""), where=r"return"),
    norm("unused-parameters", "gain and shift are not used", (" * self.weight + self.bias", ""), where=r"return"),
    unused("LayerNorm", "weight", "the gain `weight` is not used"),
    unused("LayerNorm", "bias", "the shift `bias` is not used"),
    norm(
        "gain-and-shift",
        "gain and shift have changed places",
        (" * self.weight + self.bias", " * self.bias + self.weight"),
        where=r"self\.bias",
    ),
    norm(
        "gain-and-shift",
        "the shift comes after the gain",
        (LAST, f"(centred / {ROOT} + self.bias) * self.weight"),
        where=r"self\.bias",
    ),
    norm(
        "gain-and-shift",
        "the gain is `weight` itself, not one more",
        ("self.weight + self.bias", "(1 + self.weight) + self.bias"),
        where=r"1 \+",
    ),
    norm("gain-and-shift", "the shift is added, not subtracted", ("+ self.bias", "- self.bias"), where=r"self\.bias"),
    norm(
        "gain-and-shift",
        "the gain divides; it should multiply",
        (f"{ROOT} * self.weight", f"({ROOT} * self.weight)"),
        where=r"self\.weight",
    ),
    norm("detached", FLOW.format("the variance"), (ROOT, f"{ROOT}.detach()"), where=CUT),
    norm(
        "detached",
        FLOW.format("the mean"),
        (MEAN, f"{MEAN}.detach()"),
        (VARIANCE, "x.var(-1, unbiased=False, keepdim=True)"),
        where=CUT,
    ),
    norm(
        "detached", FLOW.format("mean and variance"), (MEAN, f"{MEAN}.detach()"), (ROOT, f"{ROOT}.detach()"), where=CUT
    ),
    norm(
        "detached",
        "the values are right, but the result was cut off from everything",
        (LAST, f"({LAST}).detach()"),
        where=CUT,
    ),
    norm(
        "detached", "the values are right, but nothing flows back to x", (CENTRED, f"({CENTRED}).detach()"), where=CUT
    ),
    norm(
        "length-one",
        "divided by the length of the vector: its variance is then 1/D, not 1",
        (ROOT, "torch.sqrt((centred * centred).sum(-1, keepdim=True) + 1e-5)"),
        where=r"norm|sum",
    ),
    norm(
        "deviation-absolute",
        "the mean absolute deviation is not the root of the variance",
        (ROOT, "(centred.abs().mean(-1, keepdim=True) + 1e-5)"),
        where=r"abs",
    ),
    norm(
        "keepdim-missing",
        "mean and variance lost their last dimension: keepdim=True keeps it",
        (MEAN, "x.mean(-1)"),
        where=AXIS,
    ),
    norm(
        "keepdim-missing",
        "the variance lost its last dimension: keepdim=True keeps it",
        (VARIANCE, "(centred * centred).mean(-1)"),
        where=AXIS,
    ),
    norm("input-changed", "x itself was changed: make a new tensor", (CENTRED, f"x.sub_({MEAN})"), where=r"-=|_\("),
    norm(
        "input-changed",
        "x itself was changed: make a new tensor",
        (CENTRED, f"x.sub_({MEAN})"),
        (f"centred / {ROOT}", f"centred.div_({ROOT})"),
        where=r"-=|/=|_\(",
    ),
    norm(
        "weights-mismatch",
        "the constructor was changed: parameters keep their names and shapes",
        ("self.bias = nn.Parameter(torch.zeros(width))", "self.shift = nn.Parameter(torch.zeros(width))"),
        where=r"Parameter",
    ),
)
