"""Causes that lie in what a model keeps or shares: modes left behind, copies that hang together, stale rows."""

from clearhead.doctor.causes import Facts, Known, Score
from clearhead.doctor.finding import Cause


def any_of(score: float, *ids: str) -> Score:
    return lambda facts: score if any(facts.has(id) for id in ids) else 0.0


def mode_left(facts: Facts) -> float:
    if facts.has("restore.update-mode") or facts.among("restore.mode", "training", True):
        return 0.97
    return 0.5 if facts.has("restore.mode") else 0.0


def by_data(facts: Facts) -> float:
    if facts.has("copy.alias"):
        return 0.98
    return 0.8 if facts.has("copy.untied") else 0.0


CAUSES: list[Known] = [
    (
        Cause(
            "mode-left",
            "a call leaves the model in another mode",
            "model.eval(); tokens = search(model); model.train()",
            "was = model.training; model.eval(); ...; model.train(was)",
            "Training goes on without dropout, or evaluation with it, until somebody sets the mode again.",
        ),
        mode_left,
        ("restore", "mode"),
    ),
    (
        Cause(
            "state-left",
            "a call leaves gradients, weights or flags changed",
            "torch.set_grad_enabled(False)",
            "with torch.no_grad(): ...",
            "What the caller had set up is gone after the call, and nothing says so.",
        ),
        any_of(
            0.97, *(f"restore.{what}" for what in ("requires-grad", "gradient-mode", "gradients", "weights", "dtype"))
        ),
        ("restore", "update"),
    ),
    (
        Cause(
            "closure-kept",
            "a function keeps the module it was made over",
            "m = self.mlp; self.mlpf = lambda x: m(x)",
            "def mlpf(self, x): return self.mlp(x)",
            "A deep copy copies the modules but not what a lambda, a hook or a plain list holds: it goes on using the "
            "original.",
        ),
        any_of(0.97, "copy.shared", "copy.differs"),
        ("copy",),
    ),
    (
        Cause(
            "builds-shared",
            "models share a module or a buffer",
            "def __init__(self, norm=nn.LayerNorm(512)): ...",
            "def __init__(self, norm=None): self.norm = norm or nn.LayerNorm(512)",
            "A default argument or a class attribute is made once, for all models: they train each other.",
        ),
        any_of(0.97, "copy.builds", "copy.together"),
        ("copy",),
    ),
    (
        Cause(
            "tie-by-data",
            "weights are tied by their data",
            "head.weight.data = embedding.weight.data",
            "head.weight = embedding.weight",
            "Two parameters over one memory: moved, converted or copied they are apart, and an optimizer steps twice.",
        ),
        by_data,
        ("copy", "parameters"),
    ),
    (
        Cause(
            "lazy-state",
            "parameters or buffers are made in the first pass",
            "if not hasattr(self, 'table'): self.table = nn.Parameter(...)",
            "self.table = nn.Parameter(...)   # in __init__",
            "The optimizer was built before, and a checkpoint does not load into a model that has not run.",
        ),
        any_of(0.97, "copy.lazy"),
        ("copy", "parameters", "optimizer"),
    ),
    (
        Cause(
            "plain-tensor",
            "a table is a plain tensor",
            "self.table = sinusoids(length, width)",
            'self.register_buffer("table", sinusoids(length, width), persistent=False)',
            "Moved to a device or another precision, the model leaves it behind.",
        ),
        any_of(0.9, "copy.unmoved"),
        ("copy",),
    ),
    (
        Cause(
            "padding-row-filled",
            "an initialisation fills the padding row",
            "for p in self.parameters(): nn.init.xavier_uniform_(p)",
            "... then embedding.weight.data[padding_idx].zero_()",
            "The row is random and is never trained; whatever reads it unmasked reads noise.",
        ),
        any_of(0.9, "padding_row.filled"),
        ("padding_row", "padding"),
    ),
    (
        Cause(
            "padding-row-read",
            "padding_idx names a row that is not padding",
            "nn.Embedding(max_length, width, padding_idx=0)   # positions",
            "nn.Embedding(max_length, width)",
            "That token or position starts at zero and never gets a gradient.",
        ),
        any_of(0.97, "padding_row.read"),
        ("padding_row", "parameters"),
    ),
]
