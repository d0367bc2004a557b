"""The learning rate, swept: an arm is trained at several peak rates and judged at the best of them.

Arms that differ in shape differ in the rate that suits them, so one rate for all of them favours one of them. Which
rate is best is chosen on every second window of the held-out text, and the loss that counts is read on the others:
a choice that is judged by the numbers it was made from looks better than it is.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from clearhead.data.windows import NextTokens
from clearhead.lab.experiment import Numbers, Results, Sizes
from clearhead.lab.text import Language
from clearhead.lab.training import Trained, brief, train
from clearhead.model import ModelConfig, Transformer

NEAR = 0.01  # nats: less than this, and two rates are as good as each other


class Swept(NamedTuple):
    """The training at the best peak, its loss on the windows kept for judging, and what each peak came to."""

    trained: Trained
    loss: float
    peak: float
    by_peak: list[float]  # on the windows kept for choosing

    def numbers(self) -> Numbers:
        return {"loss": self.loss, "peak": self.peak, "by_peak": self.by_peak}


@torch.no_grad()
def loss_on(model: Transformer, data: NextTokens, windows: Sequence[int]) -> float:
    """Mean loss per token over these windows."""
    batch = data.collate(windows)
    logits = model(**batch.inputs)
    return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten()))


def sweep(config: ModelConfig, data: Language, seed: int, sizes: Sizes) -> Swept:
    """Train at every peak of the sizes; a breakdown counts as guessing among all tokens."""
    choosing, judging = (range(start, 2 * sizes["windows"], 2) for start in (0, 1))
    best: tuple[float, Trained, float] | None = None
    by_peak = []
    for peak in sizes["peaks"]:
        trained = train(config, data.train, brief(sizes["steps"], seed, peak, max_tokens=8 * sizes["context"]))
        worst = float(torch.tensor(config.vocab_size).log())
        found = worst if trained.diverged else loss_on(trained.model.eval(), data.validation, choosing)
        by_peak.append(min(found, worst))
        if best is None or found < best[0]:
            best = found, trained, peak
    assert best is not None
    _, trained, peak = best
    return Swept(trained, loss_on(trained.model.eval(), data.validation, judging), peak, by_peak)


def unbracketed(results: Results, arms: Iterable[str]) -> list[str]:
    """Arms whose best peak lies at an end of the sweep, so that a better one may lie beyond; an end that its neighbour
    comes near to is none. Empty for numbers from before rates were swept."""
    if "peaks" not in results.sizes:
        return []
    found = []
    for arm in arms:
        means = [point.mean for point in results.curve(arm, "by_peak")]
        inner = min(means[1:-1])
        if min(means[0], means[-1]) < inner - NEAR:
            found.append(arm)
    return found


def said_of_rates(results: Results) -> str:
    """How arms came to their rates, in words."""
    steps = results.sizes["steps"]
    if "peaks" not in results.sizes:
        return f"All arms share one learning rate and {steps:,} updates"
    shown = ", ".join(f"{1000 * peak:g}" for peak in results.sizes["peaks"])
    return f"Each arm at its best of the peak rates {shown} thousandths, {steps:,} updates"
