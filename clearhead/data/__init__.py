"""Tasks made on the fly, corpora from files, batches by token count.

Read in this order: `batch` (what a model is trained on), `plan` (which examples go together), `pairs` (sequence to
sequence), then the tasks. `build(DataSettings(task="copy"))` gives the datasets of a recipe.
"""

from typing import TYPE_CHECKING

from clearhead.lazy import on_first_use

if TYPE_CHECKING:  # the names of _HOME once more, because a type checker does not follow __getattr__
    from clearhead.data.batch import IGNORE as IGNORE
    from clearhead.data.batch import Batch as Batch
    from clearhead.data.batch import Dataset as Dataset
    from clearhead.data.batch import Example as Example
    from clearhead.data.pairs import source_ids as source_ids
    from clearhead.data.pairs import target_ids as target_ids
    from clearhead.data.settings import DataSettings as DataSettings
    from clearhead.data.settings import TokenizerSettings as TokenizerSettings
    from clearhead.data.splits import Splits as Splits
    from clearhead.data.splits import build as build

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
__getattr__ = on_first_use(__name__, _HOME)  # because most of it needs torch and reading a recipe does not
