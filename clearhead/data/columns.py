"""What the columns of examples have in common, whether they lie in memory or in a store: texts, origins, notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.data.batch import Lengths, Skipped, Tally
from clearhead.data.store import Chunk, Columns, Rising
from clearhead.tokenizer.base import Tokenizer


def id_type(*tokenizers: Tokenizer) -> type[np.integer[Any]]:
    """The smallest integer that holds every id."""
    return np.uint16 if max(one.size for one in tokenizers) <= 1 << 16 else np.int32


def rising(ends: Lengths) -> Rising:
    return Rising(ends, int(ends[-1]) if len(ends) else 0)


def written_texts(texts: Sequence[str]) -> dict[str, NDArray[Any] | Rising]:
    """Texts as two columns: their bytes, and where each ends."""
    written = [text.encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum(np.fromiter(map(len, written), np.int64, len(written)))
    return {"text": np.frombuffer(b"".join(written), np.uint8), "text_ends": rising(ends)}


def texts_of(columns: Columns, count: int) -> list[str]:
    """The first so many texts."""
    ends = columns["text_ends"][:count].tolist()
    return [
        columns["text"][start:end].tobytes().decode("utf-8", "surrogatepass") for start, end in pairwise([0, *ends])
    ]


def in_memory(chunk: Chunk) -> Columns:
    """One chunk as the whole of it."""
    return {name: value.values if isinstance(value, Rising) else value for name, value in chunk.items()}


class Note:
    """What became of the rows of a chunk, as JSON can hold it: kept ones of each corpus, and why others were not."""

    def __init__(self, before: Mapping[str, Any] | None = None) -> None:
        start = before or {}
        self.kept: dict[str, int] = dict(start.get("kept", {}))
        self.dropped: list[list[Any]] = [list(one) for one in start.get("dropped", [])]  # reason, what, count, first
        self.shortest: int | None = start.get("shortest")

    def keep(self, corpus: int) -> None:
        self.kept[str(corpus)] = self.kept.get(str(corpus), 0) + 1

    def drop(self, reason: str, where: str, what: str = "skipped", count: int = 1) -> None:
        for one in self.dropped:
            if one[:2] == [reason, what]:
                one[2] += count
                return
        self.dropped.append([reason, what, count, where])

    def saw(self, length: int) -> None:
        self.shortest = length if self.shortest is None else min(self.shortest, length)

    def add(self, other: "Note") -> None:
        for corpus, count in other.kept.items():
            self.kept[corpus] = self.kept.get(corpus, 0) + count
        for reason, what, count, first in other.dropped:
            self.drop(reason, first, what, count)
        if other.shortest is not None:
            self.saw(other.shortest)

    def to_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "dropped": self.dropped, "shortest": self.shortest}


@dataclass
class Origin:
    """Where the examples of a dataset come from: the files, how many each corpus has, and how they are mixed."""

    files: str
    skipped: list[Skipped] = field(default_factory=list)
    names: tuple[str, ...] = ()  # of the corpora
    sizes: tuple[int, ...] = ()
    weights: tuple[float, ...] | None = None

    def name(self, index: int, columns: Columns) -> str:
        """File and line of an example."""
        corpus = int(np.searchsorted(np.cumsum(self.sizes), index, side="right"))
        return f"{self.names[corpus] if self.names else self.files}, line {int(columns['line'][index])}"


def origin_of(
    files: str,
    names: Sequence[str],
    note: Note,
    tally: Tally | Sequence[Skipped],
    weights: Sequence[float] | None = None,
) -> Origin:
    skipped = tally.skipped() if isinstance(tally, Tally) else list(tally)
    skipped += [Skipped(count, reason, first, what) for reason, what, count, first in note.dropped]
    sizes = tuple(note.kept.get(str(number), 0) for number in range(max(1, len(names))))
    return Origin(files, skipped, tuple(names), sizes, None if weights is None else tuple(weights))
