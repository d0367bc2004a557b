"""Labelled text: a text, or two, and the one of a few names that it belongs to.

A text is read between its tokenizer's marks, `<s> text </s>`, and two as BERT reads them,
`<s> text </s> second </s>`, with segments 0 and 1 (Devlin et al., 2019, section 3); the state of the first token is
what is classified. What is longer than `max_length` tokens is cut, of two texts the longer one first, as in use.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.data.batch import Batch, Example, Indices, Kind, Ragged, Skipped, Tally, let_go
from clearhead.data.columns import Note, Origin, id_type, in_memory, origin_of, rising, texts_of, written_texts
from clearhead.data.pairs import special
from clearhead.data.plan import count_blocks, members, plan_by_length
from clearhead.data.settings import DataSettings
from clearhead.data.store import Chunk, Columns
from clearhead.data.tables import Wanted, read_table
from clearhead.errors import InputError, require
from clearhead.tokenizer.base import Tokenizer


class Row(NamedTuple):
    """One usable example: a text or two, and its label."""

    line: int
    text: str
    second: str | None
    label: str


def read_rows(path: Path, settings: DataSettings, strict: bool, tally: Tally) -> Iterator[Row]:
    """The rows of a file that can be used; in validation and test (`strict`) all must be."""
    keys = ("text_column", "second_column", "label_column")
    asked = (settings.text_column, settings.second_column, settings.label_column)
    wanted = Wanted(keys, asked, ("text", "second text", "label"), optional=("second text",))
    none = True
    for line, cells in read_table(path, wanted, strict):
        if cells == []:
            continue
        text, second, label = (None if cell is None else cell.strip() for cell in cells or (None, None, None))
        reason = ""
        if text is None or label is None:
            reason = "not UTF-8"
        elif not text or second == "":
            reason = "without a text"
        elif not label:
            reason = "without a label"
        if reason:
            require(not strict, f"{path}, line {line}: {reason}")
            tally.note(reason, f"{path}, line {line}")
        else:
            none = False
            yield Row(line, text or "", second, label or "")
    if none:
        found = ", ".join(f"{one.count:,} {one.reason}" for one in tally.skipped()) or "it has none"
        raise InputError(f"{path}: no line can be used; {found}")


LabelCounts = Mapping[str, Sequence[int]]  # how often each label occurs in a part, and in which line first


def label_names(given: Sequence[str] | None, files: str, training: LabelCounts) -> list[str]:
    """The names that are given, or those of the training rows in order."""
    names = list(given or sorted(training))
    lines = sum(count for count, _ in training.values())
    require(len(names) > 1, f"{files}: the only label is {names[0]!r}; there is nothing to tell apart")
    most = f"{len(names):,} labels in {lines:,} lines: is the label in another column?"
    require(len(names) <= max(2, lines // 2), f"{files}: {most}")
    return names


def check_labels(names: Sequence[str], files: str, found: LabelCounts) -> None:
    """Every label of a part must be one of the names."""
    known = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    for label, (_, line) in sorted(found.items(), key=lambda one: one[1][1]):
        fits = label in names
        require(fits, f"{files}, line {line}: the label {label!r} is none of those to be told apart ({known})")


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


class LabelledEncoder:
    """Rows into columns of ids, in whichever process it is called."""

    def __init__(self, tokenizer: Tokenizer, max_length: int, min_length: int = 1) -> None:
        self.tokenizer, self.max_length, self.min_length = tokenizer, max_length, min_length

    def __call__(self, rows: Sequence[tuple[int, tuple[Row, int]]], train: bool, files: str) -> tuple[Chunk, Note]:
        """`rows` are the number of the corpus, the row and the number of its label."""
        note = Note()
        ids: list[list[int]] = []
        firsts: list[int] = []
        kept: list[tuple[Row, int]] = []
        for corpus, (row, label) in rows:
            found, segments, cut = labelled_ids(self.tokenizer, row.text, row.second, self.max_length)
            if train and len(found) < self.min_length:
                note.drop(f"shorter than data.min_length = {self.min_length} tokens", f"{files}, line {row.line}")
                continue
            if cut:
                reason = f"longer than data.max_length = {self.max_length} tokens"
                note.drop(reason, f"{files}, line {row.line}", "cut")
            ids.append(found)
            firsts.append(segments.count(0))
            kept.append((row, label))
            note.keep(corpus)
        tokens = Ragged.of(ids)
        return {
            "tokens": tokens.flat.astype(id_type(self.tokenizer)),
            "tokens_ends": rising(tokens.ends),
            "first": np.array(firsts, np.int32),
            "label": np.array([label for _, label in kept], np.int32),
            "line": np.array([row.line for row, _ in kept], np.int64),
            **written_texts([text for row, _ in kept for text in (row.text, row.second or "")]),
        }, note


class Labelled:
    """Texts with a label each, for a model that says one thing of a whole sequence."""

    kind: Kind = "encoder"

    def __init__(
        self, columns: Columns, origin: Origin, tokenizer: Tokenizer, numbers: Mapping[int, int], pairs: bool,
        labels: Sequence[str], max_length: int,
    ) -> None:  # fmt: skip
        """`numbers` leads from the label in the columns to its place among the names."""
        self.columns, self.origin = columns, origin
        self.tokenizer, self.labels, self.max_length, self.pairs = tokenizer, tuple(labels), max_length, pairs
        self.head: dict[str, Any] = {"kind": "pooled", "classes": len(labels)}
        self.needs: dict[str, Any] = {"embedding": {"segments": 2}} if pairs else {}  # of the model besides
        self.pad_id = special(tokenizer, "pad")
        self.skipped: list[Skipped] = origin.skipped
        self.tokens = Ragged(columns["tokens"], columns["tokens_ends"])
        self._numbers = np.array([numbers.get(number, -1) for number in range(max(numbers) + 1)], np.int64)
        self.blocks = count_blocks(len(self))

    @classmethod
    def of(cls, rows: Sequence[Row], tokenizer: Tokenizer, labels: Sequence[str], longest: int, files: str) -> "Labelled":
        """A dataset of rows in memory."""
        places = {name: place for place, name in enumerate(labels)}
        chunk, note = LabelledEncoder(tokenizer, longest)([(0, (row, places[row.label])) for row in rows], False, files)
        pairs = any(row.second is not None for row in rows)
        origin = origin_of(files, (files,), note, ())
        return cls(in_memory(chunk), origin, tokenizer, dict(enumerate(range(len(labels)))), pairs, labels, longest)

    @property
    def files(self) -> str:
        return self.origin.files

    def __len__(self) -> int:
        return len(self.tokens)

    def longest(self) -> int:
        """Tokens of the longest text."""
        found = int(self.tokens.lengths.max())
        let_go(self.tokens.ends)
        return found

    def wanted(self, indices: Indices) -> NDArray[np.int64]:
        """The numbers of their labels."""
        return self._numbers[self.columns["label"][indices]]

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        """Here `max_tokens` counts the tokens that are read: of each text only its label is to be predicted."""
        chosen = members(self.origin.sizes, self.origin.weights, seed, epoch, block)
        lengths = self.tokens.spans(chosen)[1]
        let_go(self.tokens.ends)
        return plan_by_length(lengths, lengths, seed, epoch, max_tokens, block, chosen)

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
        tokens, real = self.tokens.padded(indices, self.pad_id)
        inputs: dict[str, Tensor] = {"tokens": torch.from_numpy(tokens)}
        if self.pairs:
            inputs["segments"] = torch.from_numpy(self.segments(indices, real))
        if not real.all():
            inputs["real"] = torch.from_numpy(real)
        return Batch(inputs, torch.from_numpy(self.wanted(indices)), len(indices))

    def segments(self, indices: Indices, real: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Of each token, to which of two texts it belongs."""
        first = self.columns["first"][indices]
        return ((np.arange(real.shape[1]) >= first[:, None]) & real).astype(np.int64)

    def texts(self, limit: int | None = None) -> list[tuple[str, str | None]]:
        """The texts themselves."""
        found = texts_of(self.columns, 2 * len(range(len(self))[:limit]))
        return [(text, second if self.pairs else None) for text, second in zip(found[::2], found[1::2], strict=True)]

    def examples(self, limit: int | None = None) -> list[Example]:
        texts = self.texts(limit)
        names = [self.labels[number] for number in self.wanted(range(len(texts))).tolist()]
        return [Example("\t".join(filter(None, pair)), name) for pair, name in zip(texts, names, strict=True)]

    def name(self, index: int) -> str:
        return self.origin.name(index, self.columns)
