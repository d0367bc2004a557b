"""What everybody should look at before training: examples as the model sees them, and what is odd about the rest.

The figures are of a sample of at most MOST examples, evenly spaced, and say so. Nothing here decides anything: it shows
what the settings (`max_length`, `max_ratio`, `deduplicate`, `normalize`) have made of the data, and what they could.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clearhead.data.batch import IGNORE, Dataset
from clearhead.data.labelled import Labelled
from clearhead.data.pairs import Pairs
from clearhead.data.windows import Windows
from clearhead.tokenizer.base import Tokenizer

MOST = 100_000  # examples that are looked at
QUANTILES = (0, 0.05, 0.5, 0.95, 0.99, 1)
# Characters that are hardly meant: control characters, unassigned and private ones, halves, the mark of what could not
# be decoded, marks of byte order and other invisible ones.
ODD = {"Cc": "control", "Cn": "unassigned", "Co": "private use", "Cs": "half a character", "Cf": "invisible"}


@dataclass
class Looks:
    """What was found in one part of the data."""

    examples: int
    looked_at: int
    lengths: dict[str, list[int]]  # by what is counted: tokens at QUANTILES
    duplicates: int  # examples that are the same as one before, of those looked at
    skipped: list[str]
    ratios: list[float] | None = None  # of pairs: source tokens / target tokens at QUANTILES
    labels: dict[str, int] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)  # characters and how many examples have them
    unknown: int = 0  # tokens that are <unk>
    tokens: int = 0


def look(data: Dataset) -> Looks:
    step = max(1, -(-len(data) // MOST))
    chosen = np.arange(0, len(data), step)
    if isinstance(data, Pairs):
        sources, targets = data.sources.spans(chosen)[1], data.targets.spans(chosen)[1] - 1
        lengths, ratios = {"source": at(sources), "target": at(targets)}, at(sources / targets)
    elif isinstance(data, Labelled):
        lengths, ratios = {"text": at(data.tokens.spans(chosen)[1])}, None
    elif isinstance(data, Windows):
        lengths, ratios = {"document": at(np.diff(data.columns["ends"][:MOST], prepend=0))}, None
    else:
        lengths, ratios = {}, None
    seen: Counter[bytes] = Counter()
    odd: Counter[str] = Counter()
    unknown = tokens = 0
    for index in chosen.tolist():
        parts = ids_of(data, index)
        seen[b"|".join(part.tobytes() for part in parts)] += 1
        for part, tokenizer in zip(parts, tokenizers_of(data), strict=True):
            tokens += len(part)
            unknown += int((part == tokenizer.unk_id).sum()) if tokenizer.unk_id is not None else 0
            odd.update(set(filter(None, map(oddity, set(tokenizer.decode(plain(part, tokenizer)))))))
    labels: dict[str, int] = {}
    if isinstance(data, Labelled):
        counts = np.bincount(data.wanted(chosen), minlength=len(data.labels))
        labels = dict(zip(data.labels, counts.tolist(), strict=True))
    return Looks(
        len(data), len(chosen), lengths, sum(count - 1 for count in seen.values()), [str(one) for one in data.skipped],
        None if ratios is None else [round(float(one), 3) for one in ratios], labels, dict(odd.most_common()), unknown,
        tokens,
    )  # fmt: skip


def at(values: Any) -> list[Any]:
    return np.quantile(values, QUANTILES, method="nearest").tolist() if len(values) else []


def ids_of(data: Dataset, index: int) -> list[Any]:
    """The ids of an example, source and target apart."""
    if isinstance(data, Pairs):
        return [data.sources[index], data.targets[index]]
    if isinstance(data, Labelled):
        return [data.tokens[index]]
    return [data.collate([index]).inputs["tokens"][0].numpy()]


def tokenizers_of(data: Dataset) -> list[Tokenizer]:
    if isinstance(data, Pairs):
        return [data.source_tokenizer or data.tokenizer, data.tokenizer]
    return [data.tokenizer]


def plain(ids: Any, tokenizer: Tokenizer) -> list[int]:
    """Without special tokens, whose names are no text."""
    special = {*tokenizer.special.values(), *tokenizer.marks.values()}
    return [token for token in ids.tolist() if token not in special]


def oddity(character: str) -> str | None:
    """What is odd about a character; nothing about most."""
    if character in "\n\t\r" or " " <= character <= "~":
        return None
    if character == "\ufffd":
        return "U+FFFD what could not be decoded"
    kind = ODD.get(unicodedata.category(character))
    if kind is None and unicodedata.normalize("NFKC", character) != character:
        return "another form in NFKC"
    return None if kind is None else f"U+{ord(character):04X} {kind}"


def shown(data: Dataset, index: int, seed: int = 0) -> list[tuple[str, Sequence[str]]]:
    """An example as the model gets it: for each input and for the labels, a row of ids, pieces or marks."""
    batch = data.collate([index], seed, 0)
    rows: list[tuple[str, Sequence[str]]] = []
    for name, value in batch.inputs.items():
        row = value[0].tolist()
        rows.append((name, [str(int(one)) for one in row]))
        if name in ("tokens", "source", "target"):
            tokenizer = tokenizers_of(data)[0] if name == "source" else data.tokenizer
            rows.append((f"{name} pieces", [piece(tokenizer, one) for one in row]))
    labels = batch.labels[0]
    if labels.dim() == 0:
        names = getattr(data, "labels", None)
        rows.append(("label", [f"{int(labels)} = {names[int(labels)]}" if names else str(int(labels))]))
    else:
        rows.append(("labels", ["·" if one == IGNORE else str(one) for one in labels.tolist()]))
    return rows


def piece(tokenizer: Tokenizer, token: int) -> str:
    return (
        tokenizer.token_bytes(token).decode("utf-8", "replace").replace(" ", "␣").replace("\n", "⏎").replace("\t", "→")
    )
