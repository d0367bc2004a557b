"""The `[data]` and `[tokenizer]` sections of a recipe.

One of five things is the data: a task that is made on the fly (`task`), two files of lines that translate each other
(`source`, `target`), one file with both in columns (`tsv`), plain text (`text`), or texts with labels (`labelled`). A
key that means nothing for the data at hand is refused, because ignoring it would hide a mistake.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from clearhead.errors import InputError
from clearhead.ranges import require_numbers

Files = str | tuple[str, ...]  # paths, or patterns such as "books/*.txt"


@dataclass(frozen=True)
class DataSettings:
    """What to train on, and how to read it."""

    ELSEWHERE: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("csv", "jsonl", "pairs"), "'tsv', whose file may be .tsv, .csv or .jsonl"),
        **dict.fromkeys(
            ("train_file", "dataset", "file", "path"), "'text', 'tsv', 'labelled' or 'source' and 'target'"
        ),
    }

    task: Literal["copy", "reverse", "sort", "count", "dates", "languages", "masked"] | None = None

    # tasks on lists and dates
    examples: int = 50_000  # for training
    held_out: int = 1_000  # for validation, and as many for each test
    symbols: int = 20  # lists are made of the numbers below this
    shortest: int = 1
    longest: int = 12  # numbers in a list
    locales: tuple[str, ...] | None = None  # of dates, for example ["de", "en_GB"]; None: some fifty

    # parallel text, line by line, or in two columns of one file (.tsv, .csv or .jsonl); plain or gzip
    source: Files | None = None
    target: Files | None = None
    validation_source: Files | None = None
    validation_target: Files | None = None
    test_source: Files | None = None
    test_target: Files | None = None
    tsv: Files | None = None
    validation_tsv: Files | None = None
    test_tsv: Files | None = None
    source_column: int | str | None = None  # by name in the first line, or number from 1; None: `source`, or the first
    target_column: int | str | None = None  # None: `target`, or the second
    max_length: int = 256  # tokens on either side; longer pairs are skipped
    max_ratio: float | None = None  # training pairs of which one side has more than so many times the other's tokens go

    # plain text, for language models and masked tokens
    text: Files | None = None
    validation_text: Files | None = None
    test_text: Files | None = None
    documents: Literal["none", "line", "blank-line", "file"] = "none"  # what ends a document; none: one long stream
    context: int = 256  # tokens in a window

    # texts with a label each, in the columns of a file; a column by its name in the first line, or its number from 1
    labelled: Files | None = None
    validation_labelled: Files | None = None
    test_labelled: Files | None = None
    text_column: int | str | None = None  # None: `text`, or the first; of plain text: it lies in files with columns
    second_column: int | str | None = None  # None: `second text`, or the second of three, or there is none
    label_column: int | str | None = None  # None: `label`, or the last
    labels: tuple[str, ...] | None = None  # their names, in the order of the classes; None: those of the training data

    # all that is read from files
    weights: tuple[float, ...] | None = None  # of several corpora, the files of a list: shares of the examples
    min_length: int = 1  # tokens of a training example; shorter ones are skipped
    deduplicate: bool = False  # training examples that were there before are skipped
    validation_share: float = 0.1  # of the training data, where no validation file is named

    def __post_init__(self) -> None:
        kind = self.kind()
        for field in fields(self):
            if field.name not in KEYS[kind] and getattr(self, field.name) != field.default:
                what = f"task = {self.task!r}" if self.task else f"data given by {KEYS[kind][0]!r}"
                raise InputError(f"data.{field.name} means nothing for {what}; leave it out")
        require_numbers(self, "data.")
        for name in ("examples", "held_out", "symbols", "shortest", "longest", "min_length", "max_length", "context"):
            if getattr(self, name) < 1:
                raise InputError(f"data.{name} must be at least 1, not {getattr(self, name)}")
        if self.shortest > self.longest:
            raise InputError(f"data.shortest = {self.shortest} is more than data.longest = {self.longest}")
        for name in ("text_column", "second_column", "label_column", "source_column", "target_column"):
            column = getattr(self, name)
            if isinstance(column, int) and column < 1:
                raise InputError(f"data.{name} must be the name of a column, or its number from 1, not {column}")
        if self.labels is not None and (len(set(self.labels)) < len(self.labels) or "" in self.labels):
            raise InputError(f"data.labels must be different names, none of them empty, not {list(self.labels)}")
        if not 0 < self.validation_share < 1:
            raise InputError(f"data.validation_share must be between 0 and 1, not {self.validation_share}")
        if self.max_ratio is not None and self.max_ratio < 1:
            raise InputError(f"data.max_ratio must be at least 1, not {self.max_ratio}")
        if kind == "text" and self.documents == "none":
            for name in ("deduplicate", "min_length"):
                if getattr(self, name) != getattr(type(self), name):
                    raise InputError(f"data.{name} is for documents, and one stream is none: set data.documents")
        self._check_lists(kind)
        for split in ("", "validation_", "test_"):
            source, target = split + "source", split + "target"
            if (getattr(self, source) is None) != (getattr(self, target) is None):
                there, missing = (target, source) if getattr(self, source) is None else (source, target)
                raise InputError(f"data.{there} is given, but data.{missing} is not")

    def _check_lists(self, kind: str) -> None:
        """Lists of files that belong together, and weights, have as many entries."""
        for split in _SPLITS if kind == "source" else ():
            sides = {side: entries(getattr(self, split + side) or ()) for side in ("source", "target")}
            if all(sides.values()) and len(sides["source"]) != len(sides["target"]):
                found = " and ".join(f"data.{split}{side} {len(files)}" for side, files in sides.items())
                raise InputError(f"{found} files: as many are wanted, each with its translation")
        if self.weights is not None:
            files = entries(getattr(self, kind))
            if len(self.weights) != len(files) or min(self.weights, default=0) <= 0:
                given = f"{list(self.weights)} for {len(files)} entries of data.{kind}"
                raise InputError(f"data.weights must be a number above 0 for each corpus, not {given}")

    def kind(self) -> str:
        """Which of `KEYS` this is."""
        given = [name for name in ("source", "tsv", "text", "labelled") if getattr(self, name) is not None]
        if self.task == "masked" or self.task is None:
            found = " and ".join(f"data.{name}" for name in given) or "none"
            if self.task == "masked" and given != ["text"]:
                raise InputError(f"task = 'masked' needs data.text and nothing else to read; found {found}")
            if len(given) != 1:
                wanted = "data.task, data.source and data.target, data.tsv, data.text or data.labelled"
                raise InputError(f"the data must be one of {wanted}; found {found}")
            return given[0]
        return self.task if self.task in ("dates", "languages") else "lists"

    def model_kind(self) -> tuple[str, dict[str, Any]]:
        """The kind of model that such data need, and its head, as far as that is known before they are read."""
        if self.task == "count":
            return "encoder", {"kind": "tokens", "classes": self.longest + 1}
        if self.task == "masked":
            return "encoder", {"kind": "masked"}
        if self.kind() in ("labelled", "languages"):
            return "encoder", {"kind": "pooled", "classes": 2}
        return ("decoder" if self.kind() == "text" else "encoder-decoder"), {}


_SPLITS = ("", "validation_", "test_")


def entries(files: Files) -> tuple[str, ...]:
    """One file or pattern, or several, as several."""
    return (files,) if isinstance(files, str) else tuple(files)


_FROM_FILES = ("weights", "min_length", "deduplicate", "validation_share")

# What can be set for each kind of data; the first names it in messages.
KEYS: dict[str, tuple[str, ...]] = {
    "lists": ("task", "examples", "held_out", "symbols", "shortest", "longest"),
    "dates": ("task", "examples", "held_out", "locales"),
    "languages": ("task", "examples", "held_out", "locales", "labels"),
    "labelled": (
        *(split + "labelled" for split in _SPLITS),
        *("text_column", "second_column", "label_column", "labels", "max_length", *_FROM_FILES),
    ),
    "source": (
        *(split + side for split in _SPLITS for side in ("source", "target")),
        *("max_length", "max_ratio", *_FROM_FILES),
    ),
    "tsv": (
        *(split + "tsv" for split in _SPLITS),
        *("source_column", "target_column", "max_length", "max_ratio", *_FROM_FILES),
    ),
    "text": (*(split + "text" for split in _SPLITS), "task", "documents", "context", "text_column", *_FROM_FILES),
}

FILE_KEYS = [split + name for split in _SPLITS for name in ("source", "target", "tsv", "text", "labelled")]
TOKENIZER_PATHS = ["path", "source_path"]


@dataclass(frozen=True)
class TokenizerSettings:
    """Which tokenizer to learn from the training data, or where to find one."""

    kind: Literal["bpe", "characters", "integers"] | None = None  # None: what suits the data
    vocab_size: int = 10_000  # of byte-pair encoding; fewer where the text has not as many pairs that occur twice
    pattern: str = "gpt2"  # how byte-pair encoding cuts text into words: gpt2, cl100k, o200k or a regular expression
    path: str | None = None  # a tokenizer that exists already: tokenizer.json, vocab.json or .tiktoken
    apart: bool = False  # the source of parallel text has a vocabulary of its own, and `path` is the target's
    source_path: str | None = None  # the source's, if it exists already; else it is learned as the target's is
    normalize: Literal["none", "NFC", "NFKC"] = "none"  # the form of Unicode in which texts are read, …
    lowercase: bool = False  # … and whether in small letters; both belong to the tokenizer, so translate does it too
    dropout: float = 0.0  # share of merges left out while training on parallel text, other ones in every epoch

    @property
    def forms(self) -> tuple[str, ...]:
        return (*([] if self.normalize == "none" else [self.normalize]), *(["lowercase"] if self.lowercase else []))

    def __post_init__(self) -> None:
        require_numbers(self, "tokenizer.")
        if self.vocab_size < 1:
            raise InputError(f"tokenizer.vocab_size must be at least 1, not {self.vocab_size}")
        if self.path is not None and (self.lowercase or self.normalize != "none"):
            raise InputError(
                "tokenizer.lowercase and normalize are for one that is learned; the one of path has its own"
            )
        if self.source_path is not None and not self.apart:
            raise InputError("tokenizer.source_path is for two vocabularies: give tokenizer.apart = true, too")
        if not 0 <= self.dropout < 1:
            raise InputError(f"tokenizer.dropout must be at least 0 and below 1, not {self.dropout}")
