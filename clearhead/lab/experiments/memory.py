"""Memory and time of attention: how much of what is credited to compilation comes from the mask?

A stack of attentions runs forward and backward over one sequence. In the first arm each layer makes its causal mask as
a (B, H, S, S) tensor of numbers, as much hand-written code does, and holds all scores. In others the mask is a flag, so
that a fused kernel never makes (S, S) tensors at all; and both are also compiled. The question is which step won what.
"""

import math
import statistics
import time
from collections.abc import Callable

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.errors import InputError
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.machine import forget_peak, resident
from clearhead.model.attention import attention, fused_attention
from clearhead.training.compile import cannot_compile

ARMS = {
    "mask in full": "plain attention, a (B, H, S, S) mask of numbers made in every layer",
    "mask once": "plain attention, one boolean (S, S) mask for all layers",
    "no mask": "plain attention that may look everywhere: what is left when no mask exists",
    "fused, mask": "the fused kernel, given the boolean mask",
    "fused, flag": "the fused kernel, told that it is causal: no mask exists",
    "mask in full, compiled": "the first, through torch.compile",
    "fused, flag, compiled": "the fused kernel with the flag, through torch.compile",
}
HEADS, WIDTH = 4, 32


def full_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    added = torch.zeros(q.size(0), q.size(1), q.size(2), k.size(2)).masked_fill(~mask, -math.inf)
    return attention(q, k, v, bias=added)[0]


MIX: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "mask in full": full_mask,
    "mask once": lambda q, k, v, mask: attention(q, k, v, mask)[0],
    "no mask": lambda q, k, v, mask: attention(q, k, v)[0],
    "fused, mask": lambda q, k, v, mask: fused_attention(q, k, v, mask)[0],
    "fused, flag": lambda q, k, v, mask: fused_attention(q, k, v, causal=True)[0],
}


def stack(arm: str, layers: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention over attention, `layers` times."""
    mix, masked = MIX[arm.removesuffix(", compiled")], "flag" not in arm and arm != "no mask"

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = torch.ones(q.size(2), k.size(2), dtype=torch.bool).tril() if masked else torch.empty(0)
        for _ in range(layers):
            v = mix(q, k, v, mask)
        return v

    if not arm.endswith("compiled"):
        return run
    reason = cannot_compile(torch.device("cpu"))
    if reason:
        raise InputError(f"the arm {arm!r} needs torch.compile, which does not work here: {reason}")
    compiled: Callable[[Tensor, Tensor, Tensor], Tensor] = torch.compile(run)
    return compiled


def cost_of(run: Callable[[Tensor, Tensor, Tensor], Tensor], length: int, rounds: int) -> tuple[float, float]:
    """Median milliseconds and peak megabytes of a forward and a backward pass."""
    q, k, v = (torch.randn(1, HEADS, length, WIDTH, requires_grad=True) for _ in range(3))

    def once() -> None:
        run(q, k, v).sum().backward()
        q.grad = k.grad = v.grad = None

    once()  # compiles, where there is something to compile
    forget_peak()
    before = resident()
    once()
    held = resident(peak=True) - before
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        once()
        seconds.append(time.perf_counter() - started)
    return 1000 * statistics.median(seconds), max(held, 4096) / 2**20


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    torch.manual_seed(seed)
    found = [cost_of(stack(arm, sizes["layers"]), length, sizes["rounds"]) for length in sizes["lengths"]]
    return {
        "time_milliseconds": [time for time, _ in found],
        "memory_megabytes": [memory for _, memory in found],
        "time_last": found[-1][0],
        "memory_last": found[-1][1],
    }


FIRST, LAST = "mask in full", "fused, flag, compiled"
TWO_THIRDS = 0.6  # and not quite that, because times are noisy


def share(results: Results, arm: str, name: str) -> float:
    """How much of the way from the first arm to the last this one has gone."""
    whole = results.mean(FIRST, name) - results.mean(LAST, name)
    return (results.mean(FIRST, name) - results.mean(arm, name)) / whole


def cost(results: Results, arm: str) -> str:
    return f"{results.mean(arm, 'time_last'):,.0f} ms and {results.mean(arm, 'memory_last'):,.0f} MiB"


def covers(arm: str, what: str, results: Results) -> Verdict:
    """Does the arm win two thirds of what all steps together win, without being compiled?"""
    if min(results.mean(FIRST, name) - results.mean(LAST, name) for name in ("time_last", "memory_last")) <= 0:
        return Verdict("cannot tell at this size", "the last arm gains nothing over the first")
    time_share, memory_share = share(results, arm, "time_last"), share(results, arm, "memory_last")
    sentence = (
        f"at {results.sizes['lengths'][-1]:,} tokens {what} wins {time_share:.0%} of the time and "
        f"{max(0.0, memory_share):.0%} of the memory that lie between the first arm ({cost(results, FIRST)}) and "
        f"the compiled one ({cost(results, LAST)})"
    )
    if min(time_share, memory_share) >= TWO_THIRDS:
        return Verdict("holds", sentence)
    if max(time_share, memory_share) >= TWO_THIRDS:
        return Verdict("holds only if", f"one speaks of {'time' if time_share >= TWO_THIRDS else 'memory'}: {sentence}")
    return Verdict("does not hold here", sentence)


def headline(results: Results) -> str:
    return (
        f"What pays is not making the mask once ({share(results, 'mask once', 'time_last'):.0%} of the time, no "
        f"memory) but having none, so that a fused kernel never holds all scores: "
        f"{cost(results, FIRST)} become {cost(results, 'fused, flag')}, and compiling adds nothing to that."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(2, width=5.6, height=4)
    lengths = results.sizes["lengths"]
    times = results.curves(ARMS, "time_milliseconds")
    lines(axes[0], lengths, times, "length (tokens)", "time, forward and backward (ms)", "Time", "xy")
    held = results.curves(ARMS, "memory_megabytes")
    lines(axes[1], lengths, held, "length (tokens)", "peak memory (MiB)", "Memory", "xy")
    return drawn


EXPERIMENT = Experiment(
    number=14,
    name="memory",
    claim="Two thirds of the gains credited to compilation come from getting the attention mask right.",
    parts=(
        Part(
            "Two thirds of the gain come from making the mask once, instead of in every layer.",
            f"Of the way from the full mask to the compiled fused kernel, at the greatest length, one mask for all "
            f"layers covers at least {TWO_THIRDS:.0%} in time and in memory: holds; in one of them: holds only for "
            "that one; in none: does not hold here.",
            lambda results: covers("mask once", "making the mask once", results),
        ),
        Part(
            "Two thirds of it come from a kernel that is told to be causal and needs no mask.",
            "The same rule for the fused kernel with a flag, uncompiled.",
            lambda results: covers("fused, flag", "the fused kernel with a flag", results),
        ),
    ),
    arms=ARMS,
    measured="Time (median) and peak resident memory of a forward and a backward pass through a stack of attentions, "
    f"{HEADS} heads of width {WIDTH}, one thread, by length. Linux with glibc only.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 2, "lengths": (256, 1024), "layers": 2, "rounds": 3},
    full={"seeds": 3, "lengths": (128, 256, 512, 1024, 2048, 4096), "layers": 2, "rounds": 5},
    columns={"time_last": "time at the greatest length (ms)", "memory_last": "peak memory (MiB)"},
    timed=True,
)
