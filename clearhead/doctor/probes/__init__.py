"""One probe a file. A probe is a module with `run(subject) -> list[Finding]`; it raises NotArmed when it has no say.

Those in `SLOW` train something or use long inputs; a quick examination leaves them out.
"""

from collections.abc import Callable
from importlib import import_module

from clearhead.doctor.finding import Finding
from clearhead.doctor.subject import Subject

Probe = Callable[[Subject], list[Finding]]

# name: what it asks, in one line; the order is the order of the report
PROBES = {
    "mode": "evaluation is repeatable, and training without dropout agrees with it",
    "future": "no position sees its future",
    "prefix": "a prefix gives the same outputs as the whole",
    "reach": "every token that may be seen is seen, and none beyond the window",
    "batch": "a row gives the same outputs alone and in company",
    "padding": "padding changes nothing",
    "finite": "outputs and gradients stay finite",
    "paths": "every way to run the model gives the same outputs",
    "cache": "decoding with the cache gives the same outputs as the full pass",
    "generate": "greedy generation picks what the full pass finds most likely",
    "position": "order matters, and positions behave as declared",
    "attention": "attention weights sum to one over the keys",
    "scale": "scores keep their size when heads get wider",
    "embedding": "embeddings are scaled exactly",
    "parameters": "every parameter is used, trained, saved and tied as declared",
    "optimizer": "the optimizer trains every parameter and spares the gains",
    "initial": "the untrained loss is that of guessing",
    "loss": "the loss is the one declared",
    "invariance": "padding and order do not change the loss",
    "update": "one update is one step down the gradient of the whole batch",
    "schedule": "the learning rate rises to its peak and falls from there",
    "packed": "packed documents give the same outputs as apart",
    "parity": "with reference weights the outputs are the reference's",
    "dropout": "dropout has the rate it was built with, and training is otherwise evaluation",
    "restore": "generate and update leave mode, weights and gradients as they found them",
    "copy": "copies, saved weights and other builds live on their own",
    "padded": "padding changes nothing in training, in generation and in the cache",
    "context": "the context can be filled to its end, and a long prompt keeps its last tokens",
    "decay": "the learning rate stays positive to its end",
    "padding_row": "only padding reads the row that does not learn, and it is zero",
    "cross": "every target token can look at every source token, in every layer",
    "bend": "no two linear maps meet without a bend between them",
    "residual": "what a sub-layer reads also goes around it",
    "norm": "a norm takes out the size of what it is given",
    "length": "all of this holds at lengths where tables and kernels change",
    "precision": "16-bit errors do not grow with the position",
    "floor": "random tokens cannot be predicted",
}
SLOW = {"length", "precision", "floor"}
# what can be asked of a model whose outputs are random in evaluation mode
RANDOM = {"mode", "scale", "embedding", "parameters", "optimizer", "initial", "update", "schedule", "floor",
          "dropout", "restore", "decay", "padding_row", "bend"}  # fmt: skip

# what must see the model's own randomness: dropout is never silenced for these
AS_IT_IS = {"mode", "dropout", "restore"}


def load(name: str) -> Probe:
    """The run function of a probe."""
    return import_module(f"clearhead.doctor.probes.{name}").run


def show(value: float) -> str:
    """A measured size as people read it."""
    return f"{value:.2g}"
