"""Recurrence: what a Transformer saves over an LSTM of equal size, and what a long-range copy costs each.

An LSTM (Hochreiter and Schmidhuber, 1997) reads a sequence step by step: its time grows with the length, and what it
read long ago must survive in a state of fixed size. Attention does all steps at once, at a cost that grows with the
square of the length, and any token is one step away. The long-range task: read a few symbols, then filler, then write
the symbols down.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from clearhead.data.batch import IGNORE, Batch, Kind, generator
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.training import brief, continue_training, small
from clearhead.model import ModelConfig, build
from clearhead.model.embedding import TokenEmbedding, VocabularyHead
from clearhead.model.initialise import initialise
from clearhead.training.loop import seed_of
from clearhead.training.loss import summed_loss

ARMS = {
    "transformer": "two layers of width 64, rotary positions",
    "lstm": "two LSTM layers, as wide as the same number of parameters allows",
}
SYMBOLS, COPIED = 8, 4
FILLER, RECALL = SYMBOLS, SYMBOLS + 1
VOCABULARY = SYMBOLS + 2


class RecurrentModel(nn.Module):
    """A language model with an LSTM where the decoder would be."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config)
        self.output = VocabularyHead(config)
        initialise(self, config)
        self.lstm = nn.LSTM(config.d_model, config.d_model, num_layers=2, batch_first=True)

    def hidden(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1))[None]
        states: Tensor = self.lstm(self.embedding(tokens, places, tokens.size(1)))[0]
        return states

    def head(self, hidden: Tensor) -> Tensor:
        return self.output(hidden, self.embedding)


def build_model(arm: str, seed: int) -> Any:
    torch.manual_seed(seed_of(seed, "weights"))
    config = small(VOCABULARY, kind="decoder", positions={"kind": "rope"})
    if arm == "transformer":
        return build(config)
    width = 78  # 2 layers · 8 · width² is as much as the Transformer's 2 · 12 · 64²
    return RecurrentModel(small(VOCABULARY, kind="decoder", d_model=width, heads=1, positions={"kind": "none"}))


class Recall:
    """Symbols, filler, a mark, and the symbols again: only the last are predicted."""

    kind: Kind = "decoder"
    head: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)
    tokenizer: Any = None
    skipped: Any = ()

    def __init__(self, distance: int, rows: int) -> None:
        self.distance, self.rows = distance, rows

    def __len__(self) -> int:
        return 1 << 20

    def plan(self, seed: int, epoch: int, max_tokens: int) -> list[list[int]]:
        """Batches of new sequences without end; the number of a sequence is its seed."""
        start = (seed * 1000 + epoch) * 1000 * self.rows
        return [list(range(start + i * self.rows, start + (i + 1) * self.rows)) for i in range(1000)]

    def collate(self, indices: Sequence[int], seed: int = 0, epoch: int = 0) -> Batch:
        symbols = np.stack([generator(index).integers(0, SYMBOLS, COPIED) for index in indices])
        filler = np.full((len(indices), self.distance), FILLER)
        mark = np.full((len(indices), 1), RECALL)
        whole = torch.from_numpy(np.concatenate((symbols, filler, mark, symbols), 1))
        labels = whole[:, 1:].clone()
        labels[:, :-COPIED] = IGNORE
        return Batch({"tokens": whole[:, :-1].contiguous()}, labels, len(indices) * COPIED)

    def examples(self, limit: int | None = None) -> list[Any]:
        return []

    def name(self, index: int) -> str:
        return f"sequence {index}"


def step_time(arm: str, seed: int, length: int, rounds: int) -> float:
    """Median milliseconds of a forward and a backward pass over 2,048 tokens in sequences of this length."""
    model = build_model(arm, seed)
    tokens = torch.randint(0, VOCABULARY, (max(1, 2048 // length), length))
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        summed_loss(model, model.hidden(tokens), tokens).backward()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds[1:])


def recalled(arm: str, seed: int, distance: int, sizes: Sizes) -> float:
    """The share of symbols that the model writes down rightly after training at this distance."""
    data = Recall(distance, sizes["rows"])
    settings = brief(sizes["steps"], seed, peak=2e-3)
    model: Any = continue_training(build_model(arm, seed), data, settings).model
    batch = data.collate(range(200))
    with torch.no_grad():
        answers = model.head(model.hidden(**batch.inputs)).argmax(-1)
    return float((answers == batch.labels)[:, -COPIED:].double().mean())


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    times = [step_time(arm, seed, length, sizes["rounds"]) for length in sizes["lengths"]]
    shares = [recalled(arm, seed, distance, sizes) for distance in sizes["distances"]]
    return {
        "time_milliseconds": [*times],
        "time_last": times[-1],
        "recalled": [*shares],
        "farthest": shares[-1],
        "parameters": float(sum(p.numel() for p in build_model(arm, seed).parameters())),
    }


def verdict(results: Results) -> Verdict:
    lengths, far = results.sizes["lengths"], results.sizes["distances"][-1]
    ratios = [
        two.mean / one.mean for one, two in zip(*(results.curve(arm, "time_milliseconds") for arm in ARMS), strict=True)
    ]
    shown = ", ".join(f"{length}: {ratio:.2f}" for length, ratio in zip(lengths, ratios, strict=True))
    gain = results.difference("transformer", "lstm", "farthest")
    sentence = (
        f"time of an LSTM step over the Transformer's, same tokens, by length: {shown}. Over {far} tokens of filler "
        f"the "
        f"Transformer recalls {results.mean('transformer', 'farthest'):.2f} of the symbols, the LSTM "
        f"{results.mean('lstm', 'farthest'):.2f}"
    )
    faster = [length for length, ratio in zip(lengths, ratios, strict=True) if ratio > 1]
    if len(faster) == len(lengths) and gain.low > 0:
        return Verdict("holds", sentence)
    if gain.low > 0:
        where = f"at lengths {', '.join(map(str, faster))}" if faster else "at no length tried"
        return Verdict("holds only if", f"one speaks of memory: it is faster here {where}. {sentence}")
    if faster:
        return Verdict("holds only if", f"one speaks of time at lengths {', '.join(map(str, faster))}: {sentence}")
    return Verdict("does not hold here", sentence)


def figure(results: Results) -> Figure:
    drawn, axes = panels(2)
    times = {arm: results.curve(arm, "time_milliseconds") for arm in ARMS}
    label = "time for 2,048 tokens, forward and backward (ms)"
    lines(axes[0], results.sizes["lengths"], times, "length of a sequence (tokens)", label, "Time on a CPU", "xy")
    shares = {arm: results.curve(arm, "recalled") for arm in ARMS}
    title = f"Recall after {results.sizes['steps']} updates"
    lines(axes[1], results.sizes["distances"], shares, "filler in between (tokens)", "share recalled", title, "x")
    return drawn


EXPERIMENT = Experiment(
    number=17,
    name="recurrence",
    claim="Without recurrence, training is faster because all tokens are computed at once, and distant tokens are as "
    "near as close ones.",
    arms=ARMS,
    measured="Time of a training step over 2,048 tokens by sequence length (one CPU thread, where little is "
    "parallel), and "
    "the share of symbols recalled after filler of several lengths, after the same number of updates.",
    rule="Faster at a length if the mean time of the LSTM exceeds the Transformer's. Better memory if the 95% "
    "interval of "
    "the Transformer's share recalled at the greatest distance, minus the LSTM's, lies above zero. Both, at all "
    "lengths: "
    "holds. One of them: holds only for that one. None: does not hold here.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={
        "seeds": 3,
        "lengths": (64, 256, 1024),
        "rounds": 3,
        "distances": (8, 32, 64),
        "steps": 250,
        "rows": 32,
    },
    full={
        "seeds": 5,
        "lengths": (64, 128, 256, 512, 1024, 2048),
        "rounds": 7,
        "distances": (8, 32, 128, 256),
        "steps": 2000,
        "rows": 32,
    },
    columns={
        "time_last": "time at the greatest length (ms)",
        "farthest": "recalled at the greatest distance",
        "parameters": "parameters",
    },
    timed=True,
)
