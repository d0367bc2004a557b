"""What a model costs, measured part by part: time and peak memory, forward and backward.

Time: the clock is read whenever another part takes over (parts.py), over several passes, and the median pass counts.
Between watched passes the same pass runs unwatched, so that the price of watching is known and can be shown.

Memory: one more pass under torch's profiler, which sees every allocation of the CPU, those inside kernels too. In use
means above what was in use when the pass began, so the weights are not in it. Gradients are: they appear during
the backward pass.
"""

import gc
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from clearhead.cost.account import Size
from clearhead.cost.parts import Part, part_of, watch
from clearhead.model import ModelConfig, Transformer, build

FORWARD, BACKWARD = "forward", "backward"
Event = tuple[str, Part | None]  # which pass, and the part that takes over in it


@dataclass(frozen=True)
class Measured:
    """One part, all its layers together. Adding two gives the time of both and the higher of their peaks."""

    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    forward_kept_bytes: int = 0  # allocated by the forward pass and not yet freed when the part was done
    forward_peak_bytes: int = 0  # the most in use at any moment while the part was at work
    backward_peak_bytes: int = 0

    def __add__(self, other: "Measured") -> "Measured":
        return Measured(
            self.forward_seconds + other.forward_seconds,
            self.backward_seconds + other.backward_seconds,
            self.forward_kept_bytes + other.forward_kept_bytes,
            max(self.forward_peak_bytes, other.forward_peak_bytes),
            max(self.backward_peak_bytes, other.backward_peak_bytes),
        )


@dataclass(frozen=True)
class Profile:
    """All parts, and the median seconds of the same pass with nobody watching."""

    parts: dict[Part, Measured]
    forward_seconds: float
    backward_seconds: float


def measure(
    config: ModelConfig, size: Size | None = None, rounds: int = 5, progress: Callable[[str], None] = lambda _: None
) -> Profile:
    """Build the model with random weights and run it, watched and unwatched in turn, `rounds` times each."""
    with torch.random.fork_rng(devices=[]):  # leave the caller's random numbers as they are
        torch.manual_seed(0)
        return measure_model(build(config).train(), (size or Size()).inputs(config), rounds, progress)


def measure_model(
    model: Transformer, inputs: tuple[Tensor, ...], rounds: int, progress: Callable[[str], None]
) -> Profile:
    """The same for a model and its inputs as they are."""
    progress("warming up")
    step(model, inputs, lambda passing: None)
    watched: list[dict[Event, float]] = []
    bare: list[dict[Event, float]] = []
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        watched.append(stopwatch(model, inputs, watching=True))
        bare.append(stopwatch(model, inputs, watching=False))
    progress("measuring memory")
    memory = memory_use(model, inputs)

    def median(taken: list[dict[Event, float]], event: Event) -> float:
        return statistics.median(one.get(event, 0.0) for one in taken)

    parts = {part for one in watched for _, part in one if part is not None}
    return Profile(
        {
            part: Measured(
                median(watched, (FORWARD, part)),
                median(watched, (BACKWARD, part)),
                memory[FORWARD, part].kept,
                memory[FORWARD, part].peak,
                memory[BACKWARD, part].peak,
            )
            for part in sorted(parts, key=str)
        },
        median(bare, (FORWARD, None)),
        median(bare, (BACKWARD, None)),
    )


def step(model: Transformer, inputs: tuple[Tensor, ...], begin: Callable[[str], None]) -> None:
    """One pass forward and one backward, saying which begins; the gradients start from nothing, as in training."""
    model.zero_grad(set_to_none=True)
    begin(FORWARD)
    output = model(*inputs)
    begin(BACKWARD)
    output.backward(torch.ones_like(output))  # stands in for the gradient of a loss
    begin("")


def stopwatch(model: Transformer, inputs: tuple[Tensor, ...], watching: bool) -> dict[Event, float]:
    """Seconds of one step by pass and part; unwatched, all of a pass under the part None."""
    seconds: dict[Event, float] = defaultdict(float)
    now: Event = ("", None)
    since = time.perf_counter()

    def change(event: Event) -> None:
        nonlocal now, since
        seconds[now] += time.perf_counter() - since
        now = event
        since = time.perf_counter()

    def begin(passing: str) -> None:
        change((passing, part_of("") if watching and passing else None))

    if watching:
        with watch(model, lambda part: change((now[0], part))):
            step(model, inputs, begin)
    else:
        step(model, inputs, begin)
    return dict(seconds)


@dataclass
class Use:
    """Bytes in use, above those at the start: the most at any moment of an event, and what it left behind."""

    peak: int = 0
    kept: int = 0


def memory_use(model: Transformer, inputs: tuple[Tensor, ...]) -> dict[Event, Use]:
    """Memory of one step by pass and part, from the profiler's list of allocations."""
    events: list[Event] = []

    def mark(event: Event) -> None:
        with record_function(f"{MARK}{len(events)}"):  # a time stamp on the profiler's own clock
            events.append(event)

    def change(part: Part | None) -> None:
        mark((events[-1][0], part))

    model.zero_grad(set_to_none=True)
    gc.collect()  # or the garbage of before is freed in the middle, and counts as memory given back
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler, watch(model, change):
        step(model, inputs, lambda passing: mark((passing, part_of("") if passing else None)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        rows = json.loads(path.read_text())["traceEvents"]
    return replay(rows, events)


MARK = "clearhead part "


def replay(rows: list[dict[str, Any]], events: list[Event]) -> dict[Event, Use]:
    """Go through allocations and marks in the order of time, keeping the sum of what is in use."""
    found = [row for row in rows if row.get("name") == "[memory]" or str(row.get("name")).startswith(MARK)]
    uses: dict[Event, Use] = defaultdict(Use)
    in_use = 0
    now: Event = ("", None)
    for row in sorted(found, key=lambda row: float(row["ts"])):
        if row["name"] == "[memory]":
            in_use += int(row["args"]["Bytes"])
            uses[now].kept += int(row["args"]["Bytes"])
        else:
            now = events[int(row["name"].removeprefix(MARK))]
        uses[now].peak = max(uses[now].peak, in_use)
    return uses
