"""Causes that lie in parameters: not used, not trained, not saved, not tied, all the same; and in modes."""

from clearhead.doctor.causes import Facts, Known, Score
from clearhead.doctor.finding import Cause


def found(id: str, score: float, unless: str = "") -> Score:
    def fits(facts: Facts) -> float:
        return score if facts.has(id) and not (unless and facts.has(unless)) else 0.0

    return fits


def unused(facts: Facts) -> float:
    if facts.has("parameters.unused") and facts.none("parameters.detached"):
        return 0.9 if facts.none("future.visible", "batch.coupled", "prefix.differs") else 0.5
    return 0.8 if facts.has("parameters.unused-rows") else 0.0


def eval_path(facts: Facts) -> float:
    if not facts.has("mode.differs"):
        return 0.9 if facts.has("mode.gradient") else 0.0
    return 0.6 if facts.has("future.visible") else 0.98


def unregistered(facts: Facts) -> float:
    # three layers with one layer's parameters, and modules that eval() does not reach
    if facts.has("parameters.shared") and (facts.has("mode.random") or facts.has("parameters.not-saved")):
        return 0.995
    return 0.92 if facts.has("parameters.not-saved") else 0.0


def identical(facts: Facts) -> float:
    if not facts.has("parameters.identical"):
        return 0.0
    return 0.9 if facts.of("parameters.identical", "layers", True) else 0.3


def tie(facts: Facts) -> float:
    if facts.has("parameters.tie"):
        return 0.95
    return 0.9 if facts.of("parameters.identical", "layers") is False else 0.0


def detached(facts: Facts) -> float:
    return 0.95 if facts.has("parameters.detached") and facts.none("mode.differs") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "dropout-in-eval",
            "dropout acts in evaluation",
            "F.dropout(x, p)",
            "F.dropout(x, p, self.training)",
            "Functional dropout and fused kernels do not know about eval(); they must be told.",
        ),
        found("mode.random", 0.99),
        ("mode", "prefix", "batch", "padding", "cache", "generate", "packed", "attention", "parity"),
    ),
    (
        Cause(
            "eval-path",
            "evaluation runs other code than training",
            "if not self.training: return fast(x)",
            "the same computation on both paths, dropout aside",
            "A fast path differs from the code that was trained.",
        ),
        eval_path,
        ("mode", "reach", "position"),
    ),
    (
        Cause(
            "stale-state",
            "the model remembers earlier calls",
            "self.mask = mask   # kept for the next call",
            "mask = causal(S)   # made for this call",
            "A buffer built from one input is used for the next.",
        ),
        found("mode.remembers", 0.98),
        ("mode", "prefix", "batch", "padding", "cache", "parity"),
    ),
    (
        Cause(
            "dropout-missing",
            "dropout never acts",
            "nn.Dropout(p) created, never called",
            "x = self.dropout(x)",
            "The model trains without the regularisation its configuration asks for.",
        ),
        lambda facts: max(
            found("mode.no-dropout", 0.9)(facts), found("dropout.layers", 0.9)(facts), found("dropout.off", 0.9)(facts)
        ),
        ("mode", "dropout.layers", "dropout.off"),
    ),
    (
        Cause(
            "detached",
            "the graph is cut",
            "memory.detach(), x.data",
            "memory",
            "Everything before the cut stays as it was initialised, without any error.",
        ),
        detached,
        ("parameters",),
    ),
    (
        Cause(
            "unused-parameters",
            "parameters are never used",
            "self.norm = Norm(d)   # not called in forward",
            "x = self.norm(x)",
            "Something that was built is not part of the computation.",
        ),
        unused,
        ("parameters",),
    ),
    (
        Cause(
            "identical-layers",
            "layers start as copies of one another",
            "[copy.deepcopy(layer) for _ in range(N)]",
            "[Layer(config) for _ in range(N)]",
            "Equal weights get equal gradients at first; the layers begin as one.",
        ),
        identical,
        ("parameters",),
    ),
    (
        Cause(
            "shared-layers",
            "one layer is used again and again",
            "[Layer(config)] * N",
            "[Layer(config) for _ in range(N)]",
            "The list holds the same module N times: a model of one layer's parameters.",
        ),
        found("parameters.shared", 0.95, "parameters.not-saved"),
        ("parameters",),
    ),
    (
        Cause(
            "unregistered",
            "something is not in the state dict",
            "self.layers = [Layer(), Layer()]",
            "self.layers = nn.ModuleList([Layer(), Layer()])",
            "A plain list hides parameters from the optimizer and from saving; so does a random buffer that is not "
            "kept.",
        ),
        unregistered,
        ("parameters", "optimizer"),
    ),
    (
        Cause(
            "tie",
            "the output head is not tied as declared",
            "self.head.weight.data = self.embedding.weight.data.clone()",
            "self.head.weight = self.embedding.weight",
            "A copy drifts away with the first update, or a loader ties what was trained apart.",
        ),
        tie,
        ("parameters",),
    ),
    (
        Cause(
            "zero-embedding",
            "embeddings start at zero",
            "nn.init.zeros_(self.embedding.weight)",
            "nn.init.normal_(self.embedding.weight, std=d ** -0.5)",
            "All tokens look the same, and stay so where the gradient is zero too.",
        ),
        found("parameters.zero", 0.97),
        ("parameters", "initial"),
    ),
    (
        Cause(
            "optimizer-misses",
            "the optimizer does not hold all parameters",
            "opt = AdamW(model.parameters()); model.head = new",
            "model.head = new; opt = AdamW(model.parameters())",
            "What was swapped or filtered out never learns.",
        ),
        lambda facts: max(found("optimizer.misses", 0.95)(facts), found("optimizer.still", 0.9)(facts)),
        ("optimizer",),
    ),
    (
        Cause(
            "decay-on-norms",
            "weight decay acts on gains and biases",
            "AdamW(model.parameters(), weight_decay=0.1)",
            "two groups: decay for matrices, none for vectors",
            "Gains are pulled towards zero for no benefit.",
        ),
        found("optimizer.decay", 0.9),
        ("optimizer",),
    ),
]
