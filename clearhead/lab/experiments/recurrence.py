"""Recurrence: what a Transformer saves over an LSTM of equal size, and what a long-range copy costs each.

An LSTM (Hochreiter and Schmidhuber, 1997) reads a sequence step by step: its time grows with the length, and what it
read long ago must survive in a state of fixed size. Attention does all steps at once, at a cost that grows with the
square of the length, and any token is one step away. The long-range task: read a few symbols, then filler, then write
the symbols down. Work and parallelism are told apart by the number of threads: on one, time is work; what a second one
saves is what could be done at the same time. An LSTM's steps wait for each other however many threads there are.
"""

import statistics
import time
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from clearhead.data.batch import IGNORE, Batch, Indices, Kind, generator
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.intervals import Interval, interval
from clearhead.lab.training import brief, continue_training, small
from clearhead.model import ModelConfig, build
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.heads import VocabularyHead
from clearhead.model.initialise import initialise
from clearhead.training.loop import Loop, seed_of
from clearhead.training.loss import summed_loss

ARMS = {
    "transformer": "two layers of width 64, rotary positions",
    "lstm": "two LSTM layers, as wide as the same number of parameters allows",
}
SYMBOLS, COPIED = 8, 4
LEARNED = 0.1  # nats for each symbol, where guessing costs log 8 = 2.1
FILLER, RECALL = SYMBOLS, SYMBOLS + 1
VOCABULARY = SYMBOLS + 2
THREADS = (1, 2)


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
        states: Tensor = self.lstm(self.embedding(tokens, AttentionInputs()))[0]
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
    blocks = 1

    def __init__(self, distance: int, rows: int) -> None:
        self.distance, self.rows = distance, rows

    def __len__(self) -> int:
        return 1 << 20

    def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
        """Batches of new sequences without end; the number of a sequence is its seed."""
        start = (seed * 1000 + epoch) * 1000 * self.rows
        return [list(range(start + i * self.rows, start + (i + 1) * self.rows)) for i in range(1000)]

    def collate(self, indices: Indices, seed: int = 0, epoch: int = 0) -> Batch:
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


def step_time(arm: str, seed: int, length: int, rounds: int) -> list[float]:
    """Median milliseconds of a forward and a backward pass over 2,048 tokens in sequences of this length, on one thread
    and on two; taken in turns, so that a slow moment of the machine hits both."""
    model = build_model(arm, seed)
    tokens = torch.randint(0, VOCABULARY, (max(1, 2048 // length), length))
    seconds: dict[int, list[float]] = {threads: [] for threads in THREADS}
    before = torch.get_num_threads()
    try:
        for _ in range(rounds + 1):
            for threads in THREADS:
                torch.set_num_threads(threads)
                started = time.perf_counter()
                summed_loss(model, model.hidden(tokens), tokens).backward()
                seconds[threads].append(time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)
    return [1000 * statistics.median(seconds[threads][1:]) for threads in THREADS]


def enough(loop: Loop, losses: deque[float]) -> None:
    """Callback: training ends once the loss has been low for a while."""
    losses.append(loop.update.loss)
    if len(losses) == losses.maxlen and sum(losses) / len(losses) < LEARNED:
        loop.stop = "the task is learned"


def recall(arm: str, seed: int, distance: int, sizes: Sizes) -> tuple[float, float, float]:
    """Train at this distance until the task is learned, or to the end: the updates and the seconds that it took, and
    the share of symbols that the model then writes down rightly."""
    data = Recall(distance, sizes["rows"])
    watch = partial(enough, losses=deque(maxlen=20))
    trained = continue_training(build_model(arm, seed), data, brief(sizes["steps"], seed, peak=2e-3), [watch])
    model: Any = trained.model
    batch = data.collate(range(200))
    with torch.no_grad():
        answers = model.head(model.hidden(**batch.inputs)).argmax(-1)
    share = float((answers == batch.labels)[:, -COPIED:].double().mean())
    return float(trained.loop.progress.step), trained.loop.progress.seconds, share


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    times = [step_time(arm, seed, length, sizes["rounds"]) for length in sizes["lengths"]]
    found = [recall(arm, seed, distance, sizes) for distance in sizes["distances"]]
    return {
        "time_milliseconds": [one for one, _ in times],
        "time_two_threads": [two for _, two in times],
        "time_gain": [one / two for one, two in times],
        "time_last": times[-1][0],
        "time_last_two": times[-1][1],
        "time_last_gain": times[-1][0] / times[-1][1],
        "updates": [updates for updates, _, _ in found],
        "time_seconds": [seconds for _, seconds, _ in found],
        "recalled": [share for _, _, share in found],
        "farthest_updates": found[-1][0],
        "time_farthest": found[-1][1],
        "farthest": found[-1][2],
        "parameters": float(sum(p.numel() for p in build_model(arm, seed).parameters())),
    }


def two_threads(results: Results) -> bool:
    """False for numbers from before there was a second thread."""
    return "threads" in results.sizes


def ratios(results: Results, name: str) -> dict[int, Interval]:
    """Time of an LSTM's step over the Transformer's, by length, seed by seed."""
    pairs = zip(results.each("lstm", name), results.each("transformer", name), strict=True)
    by_seed = [[lstm / other for lstm, other in zip(*pair, strict=True)] for pair in pairs]
    return {
        length: interval(values)
        for length, values in zip(results.sizes["lengths"], zip(*by_seed, strict=True), strict=True)
    }


def faster(name: str, threads: str, results: Results) -> Verdict:
    """Is a Transformer's step faster than an LSTM's of the same size, on so many threads?"""
    if name == "time_two_threads" and not two_threads(results):
        return Verdict("cannot tell at this size", "only one thread was measured")
    found = ratios(results, name)
    shown = ", ".join(f"{length}: {ratio.mean:.2f}" for length, ratio in found.items())
    sentence = f"time of an LSTM's step over the Transformer's on {threads}, same tokens, by length: {shown}"
    good = [length for length, ratio in found.items() if ratio.low > 1]
    if len(good) == len(found):
        return Verdict("holds", sentence)
    if good:
        return Verdict("holds only if", f"sequences have {', '.join(map(str, good))} tokens: {sentence}")
    if all(ratio.high < 1 for ratio in found.values()):
        return Verdict("does not hold here", sentence)
    return Verdict("cannot tell at this size", sentence)


def parallel(results: Results) -> Verdict:
    """Does a second thread save the Transformer more than the LSTM, at the greatest length?"""
    if not two_threads(results):
        return Verdict("cannot tell at this size", "on one thread nothing can be computed at once with anything else")
    gains = {arm: results.interval(arm, "time_last_gain") for arm in ARMS}
    length = results.sizes["lengths"][-1]
    sentence = (
        f"at {length:,} tokens a second thread makes the Transformer's step {gains['transformer']} times as fast and "
        f"the LSTM's {gains['lstm']} times; where each of {length:,} steps waits for the one before, no number of "
        "threads would help, but two are all that was tried"
    )
    gap = results.difference("transformer", "lstm", "time_last_gain")
    if gap.low > 0:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if gap.high < 0 else "cannot tell at this size", sentence)


def nearer(results: Results) -> Verdict:
    far, steps = results.sizes["distances"][-1], results.sizes["steps"]
    saved = results.difference("lstm", "transformer", "farthest_updates")
    costs = "; ".join(
        f"the {name} {results.mean(arm, 'farthest_updates'):.0f} updates and {results.mean(arm, 'time_farthest'):.0f} "
        f"s, and then it recalls {results.interval(arm, 'farthest')} of the symbols"
        for arm, name in (("transformer", "Transformer"), ("lstm", "LSTM"))
    )
    sentence = f"a copy over {far} tokens of filler costs {costs} ({steps:,} updates at most)"
    if saved.low > 0:
        return Verdict("holds", sentence)
    return Verdict("does not hold here" if saved.high < 0 else "cannot tell at this size", sentence)


def headline(results: Results) -> str:
    near, far = results.sizes["distances"][0], results.sizes["distances"][-1]
    updates = {arm: results.curve(arm, "updates") for arm in ARMS}
    return (
        f"From {near} to {far} tokens of filler the Transformer needs {updates['transformer'][0].mean:.0f} and "
        f"{updates['transformer'][-1].mean:.0f} updates to learn a copy, the LSTM {updates['lstm'][0].mean:.0f} and "
        f"{updates['lstm'][-1].mean:.0f}. {said_of_time(results)}"
    )


def said_of_time(results: Results) -> str:
    one = [*ratios(results, "time_milliseconds").values()][-1].mean
    text = f"An LSTM's step over {results.sizes['lengths'][-1]:,} tokens takes {one:.2f} times the Transformer's on one"
    if not two_threads(results):
        return f"{text} thread."
    two = [*ratios(results, "time_two_threads").values()][-1].mean
    return f"{text} thread, {two:.2f} times on two."


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    times = results.curves(ARMS, "time_milliseconds")
    label = "time for 2,048 tokens (ms)"
    if two_threads(results):
        two = results.curves(ARMS, "time_two_threads")
        times = {f"{arm}, {word}": found[arm] for word, found in (("1", times), ("2", two)) for arm in ARMS}
    title = "A training step, by threads" if two_threads(results) else "A training step, one thread"
    lines(axes[0], results.sizes["lengths"], times, "length of a sequence (tokens)", label, title, "xy")
    updates = results.curves(ARMS, "updates")
    distances, across = results.sizes["distances"], "filler in between (tokens)"
    title = f"Until a copy is learned, at most {results.sizes['steps']:,}"
    lines(axes[1], distances, updates, across, "updates", title, "x")
    shares = results.curves(ARMS, "recalled")
    title = "How well it is learned then"
    lines(axes[2], distances, shares, across, "share of symbols recalled", title, "x", share=True)
    return drawn


EXPERIMENT = Experiment(
    number=17,
    name="recurrence",
    claim="Without recurrence, training is faster because all tokens are computed at once, and distant tokens are as "
    "near as close ones.",
    parts=(
        Part(
            "Without recurrence training is faster, on one thread.",
            "The 95% interval of the time of an LSTM's step over the Transformer's lies above one at every length: "
            "holds; at some: holds only for those; below one at every length: does not hold here; otherwise it cannot "
            "be told.",
            partial(faster, "time_milliseconds", "one thread"),
        ),
        Part(
            "Without recurrence training is faster, on two threads.",
            "The same rule on two threads.",
            partial(faster, "time_two_threads", "two threads"),
        ),
        Part(
            "Without recurrence all tokens are computed at once.",
            "What a second thread gains is the time on one over the time on two, at the greatest length. The interval "
            "of the Transformer's gain minus the LSTM's lies above zero: holds; below: does not hold here; otherwise "
            "it cannot be told.",
            parallel,
        ),
        Part(
            "Without recurrence distant tokens are as near as close ones.",
            "The 95% interval of the LSTM's updates at the greatest distance minus the Transformer's lies above zero, "
            "where what is not learned counts as all updates there are: holds; below: does not hold here; otherwise it "
            "cannot be told.",
            nearer,
        ),
    ),
    arms=ARMS,
    measured="Time of a training step over 2,048 tokens by sequence length, on one CPU thread and on two; "
    f"updates and time until copying {COPIED} symbols over filler of several lengths is learned (a mean loss below "
    f"{LEARNED} nats over 20 updates), and the share of symbols recalled then.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={
        "seeds": 3,
        "lengths": (64, 256, 1024),
        "rounds": 3,
        "threads": THREADS,
        "distances": (8, 32, 64),
        "steps": 300,
        "rows": 16,
    },
    full={
        "seeds": 3,
        "lengths": (64, 128, 256, 512, 1024, 2048),
        "rounds": 7,
        "threads": THREADS,
        "distances": (8, 32, 128),
        "steps": 1000,
        "rows": 16,
    },
    columns={
        "time_last": "time at the greatest length, one thread (ms)",
        "farthest_updates": "updates at the greatest distance",
        "time_farthest": "time for these (s)",
        "farthest": "recalled then",
        "parameters": "parameters",
    },
    shares={"farthest": lambda sizes: 200 * COPIED, "recalled": lambda sizes: 200 * COPIED},
    timed=True,
    minutes=(1.5, 6.0),
)
