"""Labelled text: a text, or two, and the one of a few names that it belongs to.

The dataset takes rows (line, text, second text or None, label) from any iterator, so it does not matter in which form
they lie on the disk. A text is read between its tokenizer's marks, `<s> text </s>`, and two as BERT reads them,
`<s> text </s> second </s>`, with segments 0 and 1 (Devlin et al., 2019, section 3); the state of the first token is
what is classified. What is longer than `max_length` tokens is cut, of two texts the longer one first, as in use.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import Batch, Example, Kind, Ragged, Skipped
from clearhead.data.files import expand, read_lines
from clearhead.data.pairs import special
from clearhead.data.parallel import hold_out
from clearhead.data.plan import plan_by_length
from clearhead.data.settings import DataSettings
from clearhead.errors import InputError, require
from clearhead.tokenizer.base import Tokenizer

Column = int | str


class Row(NamedTuple):
    """One example as it is read; what could not be read is None."""

    line: int
    text: str | None
    second: str | None
    label: str | None


@dataclass(frozen=True)
class Labels:
    """Usable rows, and what was left out."""

    rows: list[Row]
    files: str
    skipped: list[Skipped]

    def part(self, chosen: Sequence[int], with_skipped: bool) -> "Labels":
        return Labels([self.rows[i] for i in chosen], self.files, self.skipped if with_skipped else [])

    def texts(self) -> Iterator[str]:
        for row in self.rows:
            yield from (text for text in (row.text, row.second) if text)


def read_rows(path: Path, settings: DataSettings, strict: bool) -> Iterator[Row]:
    """The rows of a file with tabs between its columns."""
    lines = read_lines(path, strict)
    cells = [line if line is None or not line.strip() else line.split("\t") for line in lines]
    first = next((row for row in cells if isinstance(row, list)), [])
    places, header = find_columns(first, settings, path)
    for number, row in enumerate(cells, 1):
        if not isinstance(row, list):
            if row is None:
                yield Row(number, None, None, None)
            continue
        if header:
            header = False
            continue
        if len(row) != len(first):
            raise InputError(f"{path}, line {number}: {len(row)} columns; wanted {len(first)} like the lines before")
        text, second, label = (None if place is None else row[place].strip() for place in places)
        yield Row(number, text, second, label)


def find_columns(
    first: Sequence[str], settings: DataSettings, path: Path
) -> tuple[tuple[int | None, int | None, int | None], bool]:
    """Which columns hold the text, the second text and the label, and whether the first line names them."""
    asked: list[Column | None] = [settings.text_column, settings.second_column, settings.label_column]
    names = [name.strip() for name in first]
    if asked == [None, None, None]:
        if {"text", "label"} <= set(names):
            asked = ["text", "second text" if "second text" in names else None, "label"]
        elif len(first) in (2, 3):
            asked = [1, 2 if len(first) == 3 else None, len(first)]
        else:
            wanted = "name its columns `text` and `label` in its first line, or say data.text_column and label_column"
            raise InputError(f"{path}: {len(first)} columns, of which none is known to be the text; {wanted}")
    for key, column in (("text_column", asked[0]), ("label_column", asked[2])):
        require(column is not None, f"{path}: data.{key} is not said; give it by name or number, as the others")
    places = [None if column is None else place_of(column, names, path) for column in asked]
    chosen = [place for place in places if place is not None]
    require(len(set(chosen)) == len(chosen), f"{path}: two of the chosen columns are the same one")
    return (places[0], places[1], places[2]), any(isinstance(column, str) for column in asked)


def place_of(column: Column, names: Sequence[str], path: Path) -> int:
    """A column by its name in the first line, or by its number from 1."""
    if isinstance(column, int):
        require(column <= len(names), f"{path}: no column {column}; its first line has {len(names)}")
        return column - 1
    if names.count(column) != 1:
        found = "no column" if column not in names else f"{names.count(column)} columns"
        raise InputError(f"{path}: {found} {column!r}; its first line has: {', '.join(names)[:200]}")
    return names.index(column)


def choose(rows: Iterable[Row], files: str, strict: bool, pair: bool) -> Labels:
    """The rows that can be used; in validation and test (`strict`) all must be."""
    kept = []
    reasons: Counter[str] = Counter()
    first: dict[str, str] = {}
    for row in rows:
        reason = ""
        if row.text is None or row.label is None:
            reason = "not UTF-8"
        elif not row.text or (pair and not row.second):
            reason = "without a text"
        elif not row.label:
            reason = "without a label"
        if not reason:
            kept.append(row)
            continue
        require(not strict, f"{files}, line {row.line}: {reason}")
        reasons[reason] += 1
        first.setdefault(reason, f"{files}, line {row.line}")
    if not kept:
        found = ", ".join(f"{n:,} {why}" for why, n in reasons.items()) or "it has none"
        raise InputError(f"{files}: no line can be used; {found}")
    return Labels(kept, files, [Skipped(count, why, first[why]) for why, count in reasons.items()])


def read_labelled(settings: DataSettings) -> tuple[Labels, Labels, Labels | None]:
    """Training, validation and test rows, as far as the settings name them."""

    def part(split: str) -> Labels | None:
        file = getattr(settings, split + "labelled")
        if file is None:
            return None
        rows = list(read_rows(expand(file), settings, split != ""))
        return choose(rows, str(expand(file)), split != "", any(row.second for row in rows))

    train, validation, test = part(""), part("validation_"), part("test_")
    assert train is not None  # the settings have seen to that
    if validation is None:
        for_training, for_validation = hold_out(len(train.rows), settings.validation_share)
        train, validation = train.part(for_training, True), train.part(for_validation, False)
    return train, validation, test


def label_names(settings: DataSettings, train: Labels, others: Iterable[Labels | None]) -> tuple[str, ...]:
    """The names that the settings give, or those of the training rows in order; every row must have one of them."""
    found = sorted({row.label or "" for row in train.rows})
    names = settings.labels or tuple(found)
    require(len(names) > 1, f"{train.files}: the only label is {names[0]!r}; there is nothing to tell apart")
    most = f"{len(names):,} labels in {len(train.rows):,} lines: is the label in another column?"
    require(len(names) <= max(2, len(train.rows) // 2), f"{train.files}: {most}")
    for part in (train, *others):
        for row in part.rows if part else ():
            if row.label not in names:
                known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
                where = f"{part.files}, line {row.line}" if part else ""
                raise InputError(f"{where}: the label {row.label!r} is none of those to be told apart ({known})")
    return tuple(names)


def mark_texts(tokenizer: Tokenizer) -> None:
    """Let a tokenizer that has no marks of its own put `<s>` and `</s>` around a text, now and once it is loaded."""
    if tokenizer.around is None:
        tokenizer.around = (special(tokenizer, "bos"),), (special(tokenizer, "eos"),)


def labelled_ids(tokenizer: Tokenizer, text: str, second: str | None, most: int) -> tuple[list[int], list[int], bool]:
    """The ids of a text or two between their marks, to which of the two each belongs, and whether any was cut off."""
    before, after = tokenizer.around or ((), ())
    parts = [tokenizer.encode_ordinary(part[: 64 * most]) for part in (text, second) if part is not None]
    room = most - len(before) - len(parts) * len(after)
    require(room >= len(parts), f"data.max_length = {most} leaves no room for a text between its marks")
    cut = sum(map(len, parts)) > room
    while (over := sum(map(len, parts)) - room) > 0:
        longest = max(parts, key=len)
        others = max((len(part) for part in parts if part is not longest), default=0)
        del longest[max(len(longest) - over, min(others, len(longest) - 1)) :]
    ids, segments = [*before], [0] * len(before)
    for number, part in enumerate(parts):
        ids += [*part, *after]
        segments += [number] * (len(part) + len(after))
    return ids, segments, cut


def macro_f1(right: NDArray[Any], predicted: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The mean over the labels that occur, on either side, of their F1."""
    there = (predicted + wanted) > 0
    return float((2 * right[there] / (predicted + wanted)[there]).mean())


class Labelled:
    """Texts with a label each, for a model that says one thing of a whole sequence."""

    kind: Kind = "encoder"

    def __init__(
        self,
        part: Labels,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_length: int,
    ) -> None:
        self.rows, self.files = part.rows, part.files
        self.tokenizer, self.labels, self.max_length = tokenizer, tuple(labels), max_length
        self.pairs = any(row.second is not None for row in part.rows)
        self.head: dict[str, Any] = {"kind": "pooled", "classes": len(labels)}
        self.needs: dict[str, Any] = {"embedding": {"segments": 2}} if self.pairs else {}  # of the model besides
        self.pad_id = special(tokenizer, "pad")
        encoded = [labelled_ids(tokenizer, row.text or "", row.second, max_length) for row in part.rows]
        cut = [row.line for row, (_, _, was_cut) in zip(part.rows, encoded, strict=True) if was_cut]
        self.skipped = list(part.skipped)
        if cut:
            where = f"{part.files}, line {cut[0]}"
            self.skipped.append(Skipped(len(cut), f"longer than data.max_length = {max_length} tokens", where, "cut"))
        self.tokens = Ragged.of([ids for ids, _, _ in encoded])
        self.segments = Ragged.of([segments for _, segments, _ in encoded])
        number = {name: place for place, name in enumerate(labels)}
        self.wanted: NDArray[np.int64] = np.array([number[row.label or ""] for row in part.rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        """Here `max_tokens` counts the tokens that are read: of each text only its label is to be predicted."""
        return plan_by_length(self.tokens.lengths, self.tokens.lengths, seed, epoch, max_tokens)

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        tokens, real = self.tokens.padded(indices, self.pad_id)
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(tokens)}
        if self.pairs:
            inputs["segments"] = torch.from_numpy(self.segments.padded(indices, 0)[0])
        if not real.all():
            inputs["real"] = torch.from_numpy(real)
        return Batch(inputs, torch.from_numpy(self.wanted[indices]), len(indices))

    def examples(self, limit: int | None = None) -> list[Example]:
        return [Example("\t".join(filter(None, row[1:3])), row.label or "") for row in self.rows[:limit]]

    def name(self, index: int) -> str:
        return f"{self.files}, line {self.rows[index].line}"
