"""Running an experiment: every arm with every seed, each on one thread, as many side by side as there are cores.

What these small models compute is too little to share between threads, so two cells on one core each finish sooner than
one after the other on two. It also fixes the order in which numbers are added up, hence the same digits every time. An
experiment that measures time or memory has the machine to itself: one cell at a time, each in a fresh process.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from clearhead.lab import store
from clearhead.lab.catalogue import find
from clearhead.lab.experiment import FIRST_SEED, PILOT_SEED, Cell, Experiment, Results, Sizes

Tell = Callable[[int, int, str], None]  # cells done, cells in all, the last one's name
Missing = tuple[str, int, Path]  # arm, seed, and where the cell will be


def measure_cell(name: str, arm: str, seed: int, sizes: Sizes, path: Path) -> Cell:
    """Measure one arm with one seed and keep the result; what a worker process does."""
    import torch

    torch.set_num_threads(1)
    started = time.perf_counter()
    cell = Cell(arm, seed, find(name).measure(arm, seed, sizes))
    store.save_cell(path, sizes, cell, time.perf_counter() - started)
    return cell


def run(
    experiment: Experiment,
    folder: Path,
    quick: bool,
    seeds: int | None = None,
    jobs: int | None = None,  # worker processes; 1: in this one
    pilot: bool = False,  # seeds that no report shows
    tell: Tell = lambda done, total, what: None,
    until: float | None = None,  # of time.monotonic(): no cell is begun after it
) -> Results | None:
    """All cells that are not there yet, then the results of all of them; None if the time was up before."""
    sizes = experiment.sizes(quick, seeds)
    first = PILOT_SEED if pilot else FIRST_SEED
    wanted = [
        (arm, seed, store.cell_path(folder, experiment.name, quick, arm, seed))
        for seed in range(first, first + sizes["seeds"])
        for arm in experiment.arms
    ]
    cells: dict[tuple[str, int], Cell] = {}
    for arm, seed, path in wanted:
        known = store.load_cell(path, sizes)
        if known is not None:
            cells[arm, seed] = known
    missing = [(arm, seed, path) for arm, seed, path in wanted if (arm, seed) not in cells]

    def done(cell: Cell) -> None:
        cells[cell.arm, cell.seed] = cell
        tell(len(cells), len(wanted), f"{cell.arm}, seed {cell.seed}")

    tell(len(cells), len(wanted), "")
    jobs = jobs or os.cpu_count() or 1
    if jobs == 1:
        for arm, seed, path in in_time(missing, until):
            done(measure_cell(experiment.name, arm, seed, sizes, path))
    elif missing:
        measure_in_workers(experiment, sizes, missing, jobs, done, until)
    return experiment.results(sizes, cells.values()) if len(cells) == len(wanted) else None


def in_time(missing: list[Missing], until: float | None) -> Iterator[Missing]:
    """Those that may still begin when their turn comes."""
    for one in missing:
        if until is not None and time.monotonic() >= until:
            return
        yield one


def measure_in_workers(
    experiment: Experiment,
    sizes: Sizes,
    missing: list[Missing],
    jobs: int,
    done: Callable[[Cell], None],
    until: float | None = None,
) -> None:
    """Each cell in a process of a pool; `spawn`, because threads of torch do not survive a fork."""
    cells = [(experiment.name, arm, seed, sizes, path, until) for arm, seed, path in missing]
    context = multiprocessing.get_context("spawn")
    workers = 1 if experiment.timed else min(jobs, len(cells))
    # leaving the pool ends its workers, also when Ctrl-C makes us leave: what is finished is stored
    with context.Pool(workers, leave_interrupts_to_us, maxtasksperchild=1 if experiment.timed else None) as pool:
        for cell in pool.imap_unordered(measure_task, cells):
            if cell is not None:
                done(cell)


def measure_task(task: tuple[str, str, int, Sizes, Path, float | None]) -> Cell | None:
    """In a worker: the cell, or nothing if time was up before its turn (all processes read one monotonic clock)."""
    *cell, until = task
    return measure_cell(*cell) if until is None or time.monotonic() < until else None  # type: ignore[arg-type]


def leave_interrupts_to_us() -> None:
    """Ctrl-C reaches every process of the terminal; one answer to it is enough."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
