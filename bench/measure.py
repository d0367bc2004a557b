"""The rules of measuring, used by every benchmark here.

A shared machine drifts, so a time alone says little: ours and each peer run *interleaved*, round after round,
and what is reported is the ratio of the medians with an interval over the rounds. Every contestant does the
same work, is warmed up, and runs at whichever thread count suits it best (for small tensors two threads can
be many times slower than one, and a peer must not lose to a bad setting).
"""

import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Work = Callable[[], object]


@dataclass
class Contestant:
    """One side of a comparison: the work, and how to set its number of threads (None: it has no such setting)."""

    name: str
    work: Work
    set_threads: Callable[[int], None] | None = None
    threads: int = 1
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def torch_threads(n: int) -> None:
    """Set torch's thread count; contestants that compute with torch pass this as `set_threads`."""
    import torch

    torch.set_num_threads(n)


def timed(contestant: Contestant) -> float:
    if contestant.set_threads is not None:
        contestant.set_threads(contestant.threads)
    start = time.perf_counter()
    contestant.work()
    return time.perf_counter() - start


def compete(contestants: list[Contestant], rounds: int = 9, threads: Iterable[int] = (1, 2)) -> list[Contestant]:
    """Time all contestants interleaved, each at every thread count in every round, and keep its best count.

    Choosing beforehand would let one noisy moment decide for all rounds. The order inside a round rotates, so that
    nobody always goes first.
    """
    trials = [
        Contestant(contestant.name, contestant.work, contestant.set_threads, count)
        for contestant in contestants
        for count in (threads if contestant.set_threads is not None else (contestant.threads,))
    ]
    for trial in trials:
        timed(trial)  # warm-up
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            start = number % len(trials)
            for trial in trials[start:] + trials[:start]:
                trial.seconds.append(timed(trial))
    finally:
        gc.enable()
    for contestant in contestants:
        best = min((trial for trial in trials if trial.work is contestant.work), key=lambda trial: trial.median)
        contestant.threads, contestant.seconds = best.threads, best.seconds
    return contestants


def speed_ratio(ours: Contestant, peer: Contestant, draws: int = 2000) -> tuple[float, float, float]:
    """How many times faster ours is (median peer / median ours), with a 95% bootstrap interval over rounds."""
    generator = random.Random(0)
    rounds = len(ours.seconds)
    ratios = []
    for _ in range(draws):
        picks = [generator.randrange(rounds) for _ in range(rounds)]
        ratios.append(
            statistics.median(peer.seconds[i] for i in picks) / statistics.median(ours.seconds[i] for i in picks)
        )
    ratios.sort()
    return peer.median / ours.median, ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]


def report(title: str, ours: Contestant, peers: list[Contestant], unit: str = "s", amount: float | None = None) -> None:
    """Print one table: the median time (or `amount` per second in `unit`), threads, and our speed ratio."""
    print(f"\n{title}  ({len(ours.seconds)} interleaved rounds)")
    for contestant in [ours, *peers]:
        value = f"{amount / contestant.median:12,.0f} {unit}" if amount else f"{contestant.median * 1e3:12.2f} ms"
        line = f"  {contestant.name:<34}{value}   {contestant.threads} thread{'s' * (contestant.threads > 1)}"
        if contestant is not ours:
            ratio, low, high = speed_ratio(ours, contestant)
            line += f"   ours is {ratio:.2f}x  [{low:.2f}, {high:.2f}]"
        print(line, flush=True)


def peak_memory(module: str, *arguments: str) -> int:
    """Run `python -m module arguments…` in a fresh process; it must print its own peak in bytes as its last line."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout.strip().splitlines()[-1])
