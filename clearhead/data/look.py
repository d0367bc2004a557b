"""What everybody should look at before training: examples as the model sees them, and what is odd about the rest.

The figures are of a sample of at most MOST examples, evenly spaced, and say so. Nothing here decides anything: it shows
what the settings (`max_length`, `max_ratio`, `deduplicate`, `normalize`) have made of the data, and what they could.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    documents: int | None = None  # of plain text
    lengths: dict[str, list[int]] = field(default_factory=dict)  # by what is counted: tokens at QUANTILES
    ratios: list[float] | None = None  # of pairs: source tokens / target tokens at QUANTILES
    together: float | None = None  # of pairs: how their lengths are correlated; translations are at 0.8 and more
    counts: dict[str, int] = field(default_factory=dict)  # of those looked at, by what they are: DUPLICATE, …
    first: dict[str, str] = field(default_factory=dict)  # where the first of these is
    skipped: list[str] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)  # characters and how many examples have them
    unknown: int = 0  # tokens that are <unk>
    tokens: int = 0

    def count(self, what: str, found: bool, data: Dataset, index: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + found
        if found and self.counts[what] == 1:
            self.first[what] = f"document {index + 1}" if isinstance(data, Windows) else data.name(index)


DUPLICATE, KNOWN = "the same as one before", "the same as one of training"
CONTRARY, COPY, EXCHANGED = "with another label before", "the same on both sides", "sides exchanged, it seems"


def look(data: Dataset, train: Dataset | None = None) -> Looks:
    """What there is in a part of the data; of what is held out, given the training part, also what both have."""
    chosen = evenly(len(data))
    found = Looks(len(data), len(chosen), skipped=[str(one) for one in data.skipped])
    odd: Counter[str] = Counter()
    for index in chosen.tolist():
        for part, tokenizer in zip(ids_of(data, index), tokenizers_of(data), strict=True):
            found.tokens += len(part)
            found.unknown += int((part == tokenizer.unk_id).sum()) if tokenizer.unk_id is not None else 0
            odd.update(set(filter(None, map(oddity, set(tokenizer.decode(plain(part, tokenizer)))))))
    found.odd = dict(odd.most_common())
    look_for_repetition(found, data, train)
    if isinstance(data, Pairs):
        look_at_pairs(found, data, chosen)
    elif isinstance(data, Labelled):
        found.lengths = {"text": at(data.tokens.spans(chosen)[1])}
        counts = np.bincount(data.wanted(chosen), minlength=len(data.labels))
        found.labels = dict(zip(data.labels, counts.tolist(), strict=True))
    elif isinstance(data, Windows):
        found.documents = len(data.columns["ends"])
        found.lengths = {"document": at(np.diff(data.columns["ends"][:MOST], prepend=0))}
    return found


def look_for_repetition(found: Looks, data: Dataset, train: Dataset | None) -> None:
    """Examples (of plain text, documents) that are there twice, here or on both sides of a split."""
    if isinstance(data, Windows) and not data.apart:
        return  # a stream has no parts that stand for themselves
    seen: dict[bytes, int] = {}
    known = {sign_of(one) for _, one in whole(train)} if train is not None else set()
    for index, parts in whole(data):
        sign, label = sign_of(parts), int(data.wanted([index])[0]) if isinstance(data, Labelled) else 0
        found.count(DUPLICATE, sign in seen, data, index)
        if isinstance(data, Labelled):
            found.count(CONTRARY, seen.get(sign, label) != label, data, index)
        if train is not None:
            found.count(KNOWN, sign in known, data, index)
        seen.setdefault(sign, label)


def look_at_pairs(found: Looks, data: Pairs, chosen: NDArray[np.int64]) -> None:
    """What is only seen of two sides together."""
    sources, targets = data.sources.spans(chosen)[1], data.targets.spans(chosen)[1] - 1
    found.lengths = {"source": at(sources), "target": at(targets)}
    found.ratios = [round(float(one), 3) for one in at(sources / targets)]
    if min(np.ptp(sources), np.ptp(targets)) > 0:
        found.together = round(float(np.corrcoef(sources, targets)[0, 1]), 2)
    if data.source_tokenizer is not None:  # other ids mean nothing to each other
        return
    pairs = [[data.sources[index][:-1], data.targets[index][1:-1]] for index in chosen.tolist()]
    times = [
        np.bincount(np.concatenate(side), minlength=data.tokenizer.size) + 1.0 for side in zip(*pairs, strict=True)
    ]
    # how much likelier each token is among the targets than among the sources
    turned = np.log(times[1] / times[1].sum()) - np.log(times[0] / times[0].sum())
    for index, (source, target) in zip(chosen.tolist(), pairs, strict=True):
        same = len(source) == len(target) and bool((source == target).all())
        found.count(COPY, same, data, index)
        found.count(EXCHANGED, bool(not same and turned[source].sum() > 0 > turned[target].sum()), data, index)


def evenly(count: int) -> NDArray[np.int64]:
    """Of so many, those that are looked at."""
    return np.arange(0, count, max(1, -(-count // MOST)))


def whole(data: Dataset) -> Iterator[tuple[int, list[Any]]]:
    """The ids of each example that is looked at; of plain text, of each document."""
    if isinstance(data, Windows):
        for index in evenly(len(data.columns["ends"])).tolist():
            yield index, [data.document_ids(index)]
    else:
        for index in evenly(len(data)).tolist():
            yield index, ids_of(data, index)


def at(values: Any) -> list[Any]:
    return np.quantile(values, QUANTILES, method="nearest").tolist() if len(values) else []


def sign_of(parts: Sequence[Any]) -> bytes:
    """By this, examples are known to be the same."""
    return hashlib.blake2b(b"|".join(part.tobytes() for part in parts), digest_size=16).digest()


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
