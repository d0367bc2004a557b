"""How multi-head attention usually goes wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

PART = "MultiHeadAttention"
Q = "split_heads(self.query(x), self.heads)"
K = "split_heads(self.key(memory), self.heads)"
V = "split_heads(self.value(memory), self.heads)"
MIXED = "masked_attention(q, k, v, may_attend)"
MERGED = f"merge_heads({MIXED})"
LAST = f"self.out({MERGED})"
MANUAL = """        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if may_attend is not None:
            scores = FILL
        return self.out(merge_heads(WEIGHTS @ v))"""

Findings = Mapping[str, dict[str, Any]]
PROJECTED = r"self\.(query|key|value)\("
SHAPING = r"view|reshape|unflatten|permute|transpose|flatten|split_heads|merge_heads"


def of(id: str, say: str, *changes: tuple[str, str], where: str = PROJECTED) -> Mistake:
    return Mistake(id, PART, say, changes=changes, where=where)


def shown(id: str, say: str, fits: Callable[[Findings], float], where: str = PROJECTED) -> Mistake:
    return Mistake(id, PART, say, where=where, fits=fits)


def written_out(
    id: str,
    say: str,
    fill: str = "scores.masked_fill(~may_attend, -math.inf)",
    weights: str = "scores.softmax(-1)",
    where: str = "softmax|mask",
) -> Mistake:
    """The same with attention written out in full."""
    text = MANUAL.replace("FILL", fill).replace("WEIGHTS", weights).lstrip()
    return of(id, say, ("return " + LAST, text), where=where)


def unused(name: str) -> Callable[[Findings], float]:
    def fits(findings: Findings) -> float:
        return 0.85 if f"{name}.weight" in findings.get("parameters.unused", {}).get("parameters", []) else 0.0

    return fits


AXIS = "the weights of a query over its keys must sum to one; the softmax ran over "
MEMORY = "comes from x; in cross-attention keys and values come from the memory"
HEADS = "features of one token came to another: heads were {} by a view that moves no dimension"
SPLITS = (
    (Q, "self.query(x).view(x.size(0), self.heads, x.size(1), -1)"),
    (K, "self.key(memory).view(x.size(0), self.heads, memory.size(1), -1)"),
    (V, "self.value(memory).view(x.size(0), self.heads, memory.size(1), -1)"),
)
TURNS = tuple(
    (old, f"{old.split('(', 1)[1].rsplit(',', 1)[0]}.unflatten(-1, (-1, self.heads)).permute(0, 3, 1, 2)")
    for old in (Q, K, V)
)

# block-diagonal: head h reads and writes features h·d to h·d + d alone
SHARE = (
    "torch.stack([nn.functional.linear(part, block, bias) for part, block, bias in zip(\n"
    "            {1}.chunk(self.heads, -1),\n"
    "            [rows.chunk(self.heads, 1)[h] for h, rows in enumerate(self.{0}.weight.chunk(self.heads))],\n"
    "            self.{0}.bias.chunk(self.heads),\n"
    "        )], 1)"
)
TRANSPOSED = "x @ weight takes the weight the wrong way round: nn.Linear keeps it as (out, in); call the layer itself"


def plain(name: str) -> tuple[str, str]:
    """A projection as a bare product, without the transpose."""
    given = {"query": "x", "out": MERGED}.get(name, "memory")
    return f"self.{name}({given})", f"({given} @ self.{name}.weight + self.{name}.bias)"


MISTAKES = (
    of("weight-transposed", TRANSPOSED, *(plain(name) for name in ("query", "key", "value"))),
    of("weight-transposed", TRANSPOSED, *(plain(name) for name in ("query", "key", "value", "out"))),
    of(
        "scale-missing",
        "the scores are not divided by √d",
        (MIXED, "masked_attention(q * math.sqrt(q.size(-1)), k, v, may_attend)"),
        where=r"@|matmul|einsum",
    ),
    of(
        "scale-width",
        "divided by the root of the whole width D; each head has d features only",
        (MIXED, "masked_attention(q / math.sqrt(self.heads), k, v, may_attend)"),
        where=r"sqrt|\*\*",
    ),
    of(
        "scale-width",
        "divided by d, not by its root: perhaps by the root here, and by the root again in masked_attention",
        (MIXED, "masked_attention(q / math.sqrt(q.size(-1)), k, v, may_attend)"),
        where=r"sqrt|\*\*|/",
    ),
    of(
        "scale-width",
        "divided by the root of the number of heads, not of their width",
        (MIXED, "masked_attention(q * math.sqrt(q.size(-1) / self.heads), k, v, may_attend)"),
        where=r"sqrt|\*\*",
    ),
    of(
        "heads-shared",
        "every head looks with the first head's features: head h has those from h·d on",
        (MIXED, "masked_attention(*(y[:, :1].expand_as(y) for y in (q, k, v)), may_attend)"),
        where=r"slice|\[",
    ),
    of("unused-parameters", "the heads are merged, but never pass through `out`", (LAST, MERGED), where=r"return"),
    shown("unused-parameters", "`out` is never used", unused("out"), r"return"),
    of("unused-parameters", "x is not projected by `query`", (Q, "split_heads(x, self.heads)")),
    of("unused-parameters", "the memory is not projected by `key`", (K, "split_heads(memory, self.heads)")),
    of("unused-parameters", "the memory is not projected by `value`", (V, "split_heads(memory, self.heads)")),
    shown("unused-parameters", "`value` is never used", unused("value")),
    shown("unused-parameters", "`key` is never used", unused("key")),
    shown("unused-parameters", "`query` is never used", unused("query")),
    of(
        "memory-ignored",
        "both keys and values: what is looked at " + MEMORY,
        ("key(memory)", "key(x)"),
        ("value(memory)", "value(x)"),
    ),
    shown(
        "memory-ignored",
        "another memory gives the same: keys and values come from the memory, not from x",
        lambda findings: 0.9 if "multihead.memory" in findings else 0.0,
    ),
    of("memory-ignored", "the values: what is mixed " + MEMORY, ("value(memory)", "value(x)")),
    of("memory-ignored", "the keys: what queries are compared with " + MEMORY, ("key(memory)", "key(x)")),
    of("roles-swapped", "the queries come from the memory: x is what asks", ("query(x)", "query(memory)")),
    of(
        "roles-swapped",
        "x and memory have changed places: x asks, the memory answers",
        ("query(x)", "query(memory)"),
        ("key(memory)", "key(x)"),
        ("value(memory)", "value(x)"),
    ),
    of("projection-swapped", "the values go through `key`: `value` is for them", ("value(memory)", "key(memory)")),
    of("projection-swapped", "the keys go through `value`: `key` is for them", ("key(memory)", "value(memory)")),
    of("projection-swapped", "the keys go through `query`: `key` is for them", ("key(memory)", "query(memory)")),
    of("projection-swapped", "the queries go through `key`: `query` is for them", ("query(x)", "key(x)")),
    of("projection-swapped", "the values go through `query`", ("value(memory)", "query(memory)")),
    of(
        "projection-swapped",
        "keys and values are swapped",
        ("self.key(memory)", "self.VALUE(memory)"),
        ("self.value(memory)", "self.key(memory)"),
        ("VALUE", "value"),
    ),
    of(
        "projection-swapped",
        "queries and keys are swapped",
        ("self.key(memory)", "self.QUERY(memory)"),
        ("self.query(x)", "self.key(x)"),
        ("QUERY", "query"),
    ),
    of(
        "projection-swapped",
        "one projection serves queries, keys and values: each has its own",
        ("key(memory)", "query(memory)"),
        ("value(memory)", "query(memory)"),
    ),
    of("mask-missing", "the mask is never used", (MIXED, "masked_attention(q, k, v)"), where=r"attention|softmax"),
    of(
        "mask-one-path",
        "the mask is used only where x looks at itself: cross-attention needs its own",
        (MIXED, "masked_attention(q, k, v, may_attend if x is memory else None)"),
        where=r"mask|may_attend|if ",
    ),
    of(
        "mask-inverted",
        "the mask is the wrong way round: True means may look",
        (MIXED, "masked_attention(q, k, v, None if may_attend is None else ~may_attend)"),
        where=r"mask|may_attend",
    ),
    written_out(
        "mask-inverted",
        "the mask is the wrong way round: True means may look",
        "scores.masked_fill(may_attend, -1e9)",
    ),
    written_out(
        "mask-after-softmax",
        "masked after the softmax: the weights that are left no longer sum to one",
        "scores",
        "(scores.softmax(-1) if may_attend is None else scores.softmax(-1) * may_attend)",
    ),
    written_out("mask-value", "a hidden score of 0 hides nothing: exp(0) is 1", "scores * may_attend"),
    written_out("mask-value", "the mask was added as 0 and 1: hidden scores must be −∞", "scores + may_attend"),
    written_out("mask-value", "1e-9 hides nothing: hidden scores must be −∞", "scores.masked_fill(~may_attend, 1e-9)"),
    written_out("mask-value", "−1e-9 hides nothing: it must be −∞", "scores.masked_fill(~may_attend, -1e-9)"),
    written_out(
        "mask-broadcast",
        "the first head's mask was used for all heads",
        "scores.masked_fill(~(may_attend[:, :1] if may_attend.dim() == 4 else may_attend), -math.inf)",
    ),
    written_out(
        "mask-broadcast",
        "the first row's mask was used for all rows",
        "scores.masked_fill(~(may_attend[:1] if may_attend.dim() == 4 else may_attend), -math.inf)",
    ),
    written_out(
        "mask-broadcast",
        "each head took its own part of the mask, which is given once for all: it broadcasts to (B, H, S, T)",
        "torch.stack([s.masked_fill(~may_attend[:, h], -math.inf) for h, s in enumerate(scores.unbind(1))], 1)",
    ),
    of(
        "mask-broadcast",
        "a dimension was added to the mask: it broadcasts to (B, H, S, T) as it is given",
        (MIXED, "masked_attention(q, k, v, None if may_attend is None else may_attend.unsqueeze(1))"),
        where=r"unsqueeze|None\]|\[:, None",
    ),
    *(
        written_out("softmax-axis", AXIS + over, f"scores.masked_fill(~may_attend, {low})", f"scores.softmax({axis})")
        for axis, over in ((-2, "the queries"), (1, "the heads"), (0, "the batch"))
        for low in ("-math.inf", "-1e9")
    ),
    written_out("softmax-missing", "no softmax makes weights of the scores", weights="scores", where=r"@ ?v|matmul"),
    written_out(
        "softmax-overflow",
        "the softmax overflows: subtract each row's maximum before exp, as softmax does",
        weights="(scores.exp() / scores.exp().sum(-1, keepdim=True))",
        where=r"exp\(",
    ),
    of(
        "none-crashes",
        "may_attend may be None: then every query may look at every key",
        (MIXED, "masked_attention(q, k, v, ~~may_attend)"),
        where=r"may_attend|mask",
    ),
    of("head-view", HEADS.format("split"), *SPLITS, where=SHAPING),
    of("head-view", HEADS.format("merged"), (MERGED, f"{MIXED}.reshape(x.shape)"), where=SHAPING),
    of(
        "head-view-both",
        HEADS.format("split and merged"),
        *SPLITS,
        (MERGED, f"{MIXED}.reshape(x.shape)"),
        where=SHAPING,
    ),
    of(
        "features-in-turn",
        "the features were dealt to the heads in turn: head h owns d neighbours, from h·d on",
        *TURNS,
        where=SHAPING,
    ),
    of(
        "features-in-turn",
        "the features were dealt to the heads in turn, and merged likewise: it would train, but weights from elsewhere "
        "meet the wrong features",
        *TURNS,
        (MERGED, f"{MIXED}.permute(0, 2, 3, 1).flatten(-2)"),
        where=SHAPING,
    ),
    of(
        "features-in-turn",
        "the heads' features were merged in turn: head 0's should stand side by side, then head 1's",
        (MERGED, f"{MIXED}.permute(0, 2, 3, 1).flatten(-2)"),
        where=SHAPING,
    ),
    of(
        "heads-not-split",
        "one wide head looks at everything: split queries, keys and values among the heads",
        (Q, "split_heads(self.query(x), 1)"),
        (K, "split_heads(self.key(memory), 1)"),
        (V, "split_heads(self.value(memory), 1)"),
    ),
    of(
        "heads-not-split",
        "one wide head looks at everything: split queries, keys and values among the heads",
        (Q, "self.query(x)"),
        (K, "self.key(memory)"),
        (V, "self.value(memory)"),
        (MERGED, MIXED),
    ),
    of(
        "split-too-early",
        "split after the projection: `query`, `key` and `value` take all D features",
        (Q, "self.query(split_heads(x, self.heads))"),
        (K, "self.key(split_heads(memory, self.heads))"),
        (V, "self.value(split_heads(memory, self.heads))"),
        where=r"split_heads|view",
    ),
    of(
        "split-too-early",
        "each head saw its own share of x only: a head's share is cut from what `query`, `key` and `value` make of all "
        "D features",
        *(
            (old, SHARE.format(name, given))
            for old, name, given in ((Q, "query", "x"), (K, "key", "memory"), (V, "value", "memory"))
        ),
        where=r"split|view|:",
    ),
    of("merge-missing", "merge the heads before `out`", (MERGED, MIXED), where=r"self\.out"),
    of(
        "merged-too-late",
        "a linear map was given the features of one head: merge the heads before `out`",
        (LAST, f"merge_heads(self.out({MIXED}))"),
        where=r"self\.out",
    ),
    of("weights-returned", "return the result alone, without the weights", (LAST, LAST + ", None"), where=r"return"),
    of(
        "residual-unasked",
        "x was added to the result: that road is built in exercise 9",
        (LAST, LAST + " + x"),
        where=r"\+ ?x|\+=",
    ),
    of(
        "dropout-in-eval",
        "dropout acts: there is none here",
        (LAST, f"nn.functional.dropout({LAST}, 0.1)"),
        where="dropout",
    ),
    of(
        "detached",
        "the values are right, but nothing flows back into the memory",
        (K, K.replace("memory", "memory.detach()")),
        (V, V.replace("memory", "memory.detach()")),
        where=r"detach|no_grad|data",
    ),
    of(
        "detached",
        "the values are right, but no gradient passes `out`",
        (LAST, f"self.out({MERGED}.detach())"),
        where=r"detach|no_grad|data",
    ),
    of(
        "detached",
        "the values are right, but the result was cut off from everything",
        (LAST, LAST + ".detach()"),
        where=r"detach|no_grad|data",
    ),
    of(
        "detached",
        "the values are right, but queries and keys get no gradient: the weights were detached",
        (MIXED, "masked_attention(q.detach(), k.detach(), v, may_attend)"),
        where=r"detach|no_grad|data",
    ),
    written_out(
        "causal-unasked",
        "later keys are hidden without having been asked: the mask comes from outside",
        weights="scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf).softmax(-1)",
        where=r"tril|triu|causal",
    ),
    of(
        "stale-state",
        "something is kept from the first call: the second one looked at its memory",
        (K, f"self.__dict__.setdefault('kept', {K})"),
        (V, f"self.__dict__.setdefault('held', {V})"),
        where=r"self\.\w+ ?=|cache|hasattr",
    ),
    of(
        "weights-mismatch",
        "the constructor was changed: parameters keep their names and shapes",
        ("self.query = nn.Linear(width, width)", "self.query = nn.Linear(width, width, bias=False)"),
        where=r"Linear|Parameter",
    ),
    of(
        "heads-and-width",
        "the number of heads and the width of one are mistaken for each other: split_heads wants how many",
        (Q, Q.replace("self.heads", "x.size(-1) // self.heads")),
        (K, K.replace("self.heads", "x.size(-1) // self.heads")),
        (V, V.replace("self.heads", "x.size(-1) // self.heads")),
        where=SHAPING,
    ),
)
