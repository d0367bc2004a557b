"""The combinations that every property must hold for, and the one way to run them.

`run` gives each row's logits at its real tokens, however the rows were batched, padded, cut into chunks or cached.
The truth it is compared with is the plainest pass there is: `alone`, one row, no padding, no cache.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import clearhead
from tests.model.helpers import model, tokens

POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "none")
CHOICES: dict[str, tuple[Any, ...]] = {
    "positions": POSITIONS,
    "placement": ("pre", "post"),
    "grouped": (False, True),
    "kernels": ("plain", "fused"),
    "side": ("left", "right"),
}
CAUSAL = ("decoder", "encoder-decoder")


@dataclass(frozen=True)
class Case:
    positions: str
    placement: str
    grouped: bool
    kernels: str
    side: str

    def __str__(self) -> str:
        grouped = "grouped" if self.grouped else "heads"
        return f"{self.positions}-{self.placement}-{grouped}-{self.kernels}-{self.side}"


CASES = [Case(*values) for values in itertools.product(*CHOICES.values())]


@lru_cache(maxsize=256)
def built(kind: str, case: Case, heads: int = 4, layers: int = 2, window: int | None = None) -> Any:
    """The model of a case. Weights do not depend on the kernels."""
    return model(
        kind,
        d_model=4 * heads,
        heads=heads,
        kv_heads=max(1, heads // 2 if heads % 2 == 0 else 1) if case.grouped else None,
        d_ff=18,
        encoder_layers=1,
        decoder_layers=layers,
        positions=case.positions,
        norm={"placement": case.placement},
        kernels=case.kernels,
        window=window,
    )


def covering(choices: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Few combinations in which every pair of values of every two choices occurs (greedy, always the same)."""
    names, draw = list(choices), random.Random(0)
    pairs = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in choices[a] for y in choices[b]}
    chosen = []
    while pairs:
        tries = [{name: draw.choice(choices[name]) for name in names} for _ in range(100)]
        a, b = min(pairs, key=repr)
        for row in tries:
            row.update([a, b])  # each try covers at least one pair that is still open
        best = max(tries, key=lambda row: sum(pair in pairs for pair in itertools.combinations(row.items(), 2)))
        pairs -= set(itertools.combinations(best.items(), 2))
        chosen.append(best)
    return chosen


@dataclass(frozen=True)
class Texts:
    """Rows of unequal length, and a source for each where the model reads one."""

    targets: list[Tensor]
    sources: list[Tensor]

    @staticmethod
    def make(lengths: Sequence[int], seed: int) -> "Texts":
        sources = [1 + (seed + 3 * row) % 11 for row in range(len(lengths))]
        return Texts(
            [tokens(length, seed=seed + row) for row, length in enumerate(lengths)],
            [tokens(length, seed=seed + 100 + row) for row, length in enumerate(sources)],
        )

    def rows(self, numbers: Sequence[int]) -> "Texts":
        return Texts([self.targets[i] for i in numbers], [self.sources[i] for i in numbers])


def pad(rows: list[Tensor], side: str, width: int = 0) -> tuple[Tensor, Tensor | None]:
    """Rows side by side, padded with junk that must not matter; no mask if nothing needed padding."""
    width = max(width, max(len(row) for row in rows))
    ids, real = tokens(len(rows), width, seed=77), torch.zeros(len(rows), width, dtype=torch.bool)
    for number, row in enumerate(rows):
        place = slice(0, len(row)) if side == "right" else slice(width - len(row), width)
        ids[number, place], real[number, place] = row, True
    return ids, None if bool(real.all()) else real


def run(
    model: Any,
    texts: Texts,
    side: str = "right",
    chunks: Sequence[int] | None = None,  # cached, in steps of these sizes
    reorder: tuple[int, list[int]] | None = None,  # after this many chunks, keep these rows
) -> list[Tensor]:
    """Logits at the real tokens of each row; in eval mode and float64, so that equal means equal."""
    ids, real = pad(texts.targets, side)
    kind, count = model.config.kind, len(ids)
    with torch.no_grad():
        memory = seen = None
        if kind == "encoder-decoder":
            source, seen = pad(texts.sources, side)
            memory = model.encode(source, seen)
        cache = clearhead.KVCache(model.config, count, capacity=3) if chunks is not None else None
        pieces: list[Tensor] = []
        at = 0
        for number, size in enumerate(chunks or [ids.size(1)]):
            if reorder is not None and number == reorder[0]:
                assert cache is not None
                order = torch.tensor(reorder[1])
                cache.reorder(order)
                ids, pieces = ids[order], [piece[order] for piece in pieces]
                real = real if real is None else real[order]
                memory, seen = (x if x is None else x[order] for x in (memory, seen))
            new, mask = ids[:, at : at + size], None if real is None else real[:, at : at + size]
            at += size
            if kind == "encoder-decoder":
                pieces.append(model.head(model.decode(new, memory, seen, mask, cache)))
            elif kind == "decoder":
                pieces.append(model(new, mask, cache=cache))
            else:
                pieces.append(model(new, mask))
        assert at == ids.size(1)
        logits = torch.cat(pieces, 1)
    return [row if real is None else row[real[i]] for i, row in enumerate(logits)]


def alone(model: Any, texts: Texts) -> list[Tensor]:
    return [run(model, texts.rows([i]))[0] for i in range(len(texts.targets))]
