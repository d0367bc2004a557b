"""Numerics: an attention that is right on toy inputs, and wrong on long ones without a word.

Every arm is attention with one choice that people make: how the softmax is computed, what stands for minus infinity,
whether two masks are added, and in how many bits the rotary positions are kept. Two layers run on two sequences, one of
them padded on the left, and the result is compared with the same computation in float64. A bfloat16 has eight bits of
precision, so it cannot tell the position 257 from 256.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.model.attention import attention
from clearhead.model.masks import causal_mask, combine
from clearhead.model.positions import rotate
from clearhead.training.loop import seed_of

ARMS = {
    "plain": "as in this package: −∞, largest score subtracted, softmax and tables in at least float32",
    "naive softmax": "exp(s) / Σ exp(s), the largest score not subtracted, in the dtype of the scores",
    "running sum": "keys are added one after the other, the sums kept in the dtype of the scores",
    "sentinel −10,000": "−10,000 stands for minus infinity",
    "masks added twice": "the lowest number of the dtype is added where a key is hidden, and then once more",
    "tables in bfloat16": "the rotary cosines and sines are rounded to bfloat16",
    "positions in bfloat16": "the positions are counted in bfloat16, everything after in float32",
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAST = 32  # queries that are compared, those that look back furthest
TOY, LONG = 64, 512


def tables(positions: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rotary cosines and sines for positions (T,), computed in their dtype, as (1, 1, T, d/2)."""
    frequencies = 10_000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = (positions[:, None] * frequencies.to(positions.dtype))[None, None]
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotary(arm: str, length: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if dtype == torch.float64 or arm not in ("tables in bfloat16", "positions in bfloat16"):
        cos, sin = tables(torch.arange(length, dtype=torch.float64), width, torch.promote_types(dtype, torch.float32))
    elif arm == "tables in bfloat16":
        cos, sin = tables(torch.arange(length, dtype=torch.float64), width, torch.bfloat16)
    else:
        cos, sin = tables(torch.arange(length).to(torch.bfloat16).float(), width, torch.float32)
    return cos, sin


def scores_of(q: Tensor, k: Tensor) -> Tensor:
    return (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)


def naive_softmax(q: Tensor, k: Tensor, v: Tensor, causal: Tensor, real: Tensor) -> Tensor:
    powers = scores_of(q, k).exp() * (causal & real)
    return powers / powers.sum(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny) @ v


def running_sum(q: Tensor, k: Tensor, v: Tensor, causal: Tensor, real: Tensor) -> Tensor:
    scores = scores_of(q, k).masked_fill(~(causal & real), -math.inf)
    top = scores.amax(-1, keepdim=True)
    powers = (scores - torch.where(top == -math.inf, 0.0, top)).exp()  # (B, H, S, T)
    total, mixed = torch.zeros_like(powers[..., 0]), torch.zeros_like(v)
    for key in range(k.size(-2)):
        total = total + powers[..., key]
        mixed = mixed + powers[..., key, None] * v[..., key, None, :]
    return mixed / torch.where(total == 0, 1.0, total)[..., None]


def finite_sentinel(q: Tensor, k: Tensor, v: Tensor, causal: Tensor, real: Tensor) -> Tensor:
    return scores_of(q, k).masked_fill(~(causal & real), -10_000.0).softmax(-1) @ v


def added_twice(q: Tensor, k: Tensor, v: Tensor, causal: Tensor, real: Tensor) -> Tensor:
    seen = causal & real
    hidden = torch.zeros(seen.shape, dtype=q.dtype).masked_fill(~seen, torch.finfo(q.dtype).min)
    return (scores_of(q, k) + hidden + hidden).softmax(-1) @ v  # −∞ for a query that may see nothing: NaN


def plain(q: Tensor, k: Tensor, v: Tensor, causal: Tensor, real: Tensor) -> Tensor:
    return attention(q, k, v, combine(causal[None, None], real))[0]


MIX: dict[str, Callable[..., Tensor]] = {
    "naive softmax": naive_softmax,
    "running sum": running_sum,
    "sentinel −10,000": finite_sentinel,
    "masks added twice": added_twice,
}


def two_layers(arm: str, x: dict[str, Tensor], real: Tensor, dtype: torch.dtype) -> Tensor:
    """Attention over attention, and the last queries of each sequence."""
    length, width = x["v"].shape[-2:]
    cos, sin = rotary(arm, length, width, dtype)
    causal = causal_mask(length, length)
    mix = plain if dtype == torch.float64 else MIX.get(arm, plain)
    value = x["v"].to(dtype)
    for layer in ("1", "2"):
        q = rotate(x["q" + layer].to(dtype), cos, sin, "interleaved").to(dtype)
        k = rotate(x["k" + layer].to(dtype), cos, sin, "interleaved").to(dtype)
        value = mix(q, k, value, causal, real[:, None, None])
    return value[..., -LAST:, :].double()


def error_of(arm: str, length: int, seed: int, dtype: torch.dtype) -> tuple[float, float]:
    """Distance from float64 as a share of the result's size, at most 1, and the share of it that is not finite."""
    torch.manual_seed(seed_of(seed, length))
    x = {name: torch.randn(2, 1, length, 64) * (2 if name != "v" else 1) for name in ("q1", "k1", "q2", "k2", "v")}
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, : length // 4] = False
    # rounded first, so that what the inputs lose in 16 bits is not counted
    wanted = two_layers("plain", {name: value.to(dtype).double() for name, value in x.items()}, real, torch.float64)
    found = two_layers(arm, x, real, dtype)
    broken = ~found.isfinite()
    seen = real[:, -LAST:]  # what a padded query gets is nobody's business, unless others take it up
    gap = (torch.where(broken, 0.0, found) - wanted)[:, 0][seen]
    return min(1.0, float(gap.norm() / wanted[:, 0][seen].norm())), float(broken[:, 0][seen].double().mean())


@torch.no_grad()
def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    numbers: Numbers = {}
    for name, dtype in DTYPES.items():
        found = [error_of(arm, length, seed, dtype) for length in sizes["lengths"]]
        numbers[f"error_{name}"] = [error for error, _ in found]
        numbers[f"broken_{name}"] = [broken for _, broken in found]
        numbers[f"long_{name}"], numbers[f"lost_{name}"] = found[-1]
    return numbers


def judged(results: Results) -> tuple[list[str], list[str]]:
    """Choices that are silently wrong, and those that are not finite, each with its dtype."""
    lengths = list(results.sizes["lengths"])
    silent, loud = [], []
    for arm in ARMS:
        for name in DTYPES:
            error = dict(zip(lengths, results.curve(arm, f"error_{name}"), strict=True))
            broken = dict(zip(lengths, results.curve(arm, f"broken_{name}"), strict=True))
            toy = max(error[length].mean for length in lengths if length <= TOY)
            if max(found.mean for found in broken.values()) > 0:
                loud.append(f"{arm} in {name}")
            elif toy < 0.02 and min(error[length].low for length in lengths if length > LONG) > 0.1:
                silent.append(f"{arm} in {name} ({toy:.1e} at {TOY}, {error[lengths[-1]].mean:.2f} at {lengths[-1]})")
    return silent, loud


def silently(results: Results) -> Verdict:
    silent, loud = judged(results)
    if not silent:
        return Verdict("does not hold here", "no choice tried is right on short inputs and silently wrong on long ones")
    rest = f". Not finite, hence not silent: {', '.join(loud)}" if loud else ""
    return Verdict("holds", f"the share of the result that is wrong: {'; '.join(silent)}{rest}")


def headline(results: Results) -> str:
    silent, _ = judged(results)
    worst = max(results.mean("plain", f"long_{name}") for name in DTYPES)
    return (
        f"{len(silent)} of {len(ARMS) * len(DTYPES)} combinations pass every test up to {TOY} tokens and are wrong by "
        f"more than a tenth beyond {LONG}, without a NaN; the plain code stays within {worst:.1%} in 16 bits."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(3)
    floor: Any = lambda points: [type(p)(*(max(value, 1e-8) for value in p)) for p in points]  # noqa: E731
    for panel, name in zip(axes, DTYPES, strict=True):
        series = {arm: floor(results.curve(arm, f"error_{name}")) for arm in ARMS}
        series = {arm: s for arm, s in series.items() if max(p.mean for p in results.curve(arm, f"broken_{name}")) == 0}
        title = f"{name}" + ("" if len(series) == len(ARMS) else " (not finite: " + missing(series) + ")")
        lines(panel, results.sizes["lengths"], series, "length (tokens)", "relative error", title, "xy", [*ARMS])
    return drawn


def missing(series: dict[str, Any]) -> str:
    return ", ".join(arm for arm in ARMS if arm not in series)


EXPERIMENT = Experiment(
    number=13,
    name="numerics",
    claim="An attention can be correct on toy inputs and silently wrong at lengths over 512.",
    parts=(
        Part(
            "An attention can be right on toy inputs and silently wrong at lengths over 512.",
            "A choice is silently wrong in a dtype if its error is below 2% at every length up to 64, the interval of "
            "its error lies above 10% at every length over 512, and all results are finite. At least one such choice: "
            "holds. None: does not hold here.",
            silently,
        ),
    ),
    arms=ARMS,
    measured="Two layers of causal attention with rotary positions, width 64, one of two sequences padded: the "
    "distance from float64 at the last 32 queries, as a share of the result's size, by length and dtype, and what is "
    "not finite.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "lengths": (32, 64, 128, 256, 512, 1024)},
    full={"seeds": 5, "lengths": (32, 64, 128, 256, 512, 1024, 2048, 4096)},
    columns={
        f"{kind}_{name}": f"{what} in {name}"
        for name in DTYPES
        for kind, what in (("long", "error"), ("lost", "not finite"))
    },
)
