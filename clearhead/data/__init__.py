"""Tasks made on the fly, corpora from files, batches by token count.

Read in this order: `batch` (what a model is trained on), `plan` (which examples go together), `pairs` (sequence to
sequence), then the tasks. `build(DataSettings(task="copy"))` gives the datasets of a recipe.
"""

from importlib import import_module

_HOME = {
    "IGNORE": "batch",
    "Batch": "batch",
    "Dataset": "batch",
    "Example": "batch",
    "DataSettings": "settings",
    "TokenizerSettings": "settings",
    "Splits": "splits",
    "build": "splits",
    "source_ids": "pairs",
    "target_ids": "pairs",
}

__all__ = [*_HOME]


def __getattr__(name: str) -> object:
    # on first use, because most of it needs torch and reading a recipe does not
    if name not in _HOME:
        raise AttributeError(f"module 'clearhead.data' has no attribute {name!r}")
    return getattr(import_module(f"clearhead.data.{_HOME[name]}"), name)
