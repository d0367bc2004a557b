"""Kill a run with SIGKILL twenty times at random moments, resume it each time: does it end in the same bits?

`make bench-resume` (or `python -m bench.resume 20`). One run is left alone; twenty others are each killed once and
started again. The moment is drawn: a step, evenly over the whole run, and a delay after it, so that kills fall into
updates, validations and the writing of checkpoints. Dropout is on. Then the same with two processes, of which one is
killed and the other has to notice. Each run is a process of its own, forked from one that has imported everything.
"""

import hashlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import torch

from clearhead.data.settings import DataSettings
from clearhead.machine import machine
from clearhead.training.config import Recipe, TrainingSettings
from clearhead.training.session import train

STEPS = 60
RECIPE = Recipe(
    DataSettings(task="copy", examples=600, held_out=60),
    {"preset": "tiny", "d_model": 32, "heads": 2, "d_ff": 64, "encoder_layers": 1, "decoder_layers": 1},
    training=TrainingSettings(
        steps=STEPS,
        max_tokens=256,
        warmup=20,
        peak=3e-3,
        label_smoothing=0.1,
        validate_every=6,
        checkpoint_every=4,
        threads=1,
        log_every=1,
    ),
)


def start(run: Path, processes: int) -> list[int]:
    """Fork the ranks of one training; returns their process numbers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    ranks = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            status = 3
            try:
                os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)})
                os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
                train(RECIPE, run, quiet=True)
                status = 0
            except Exception as error:
                (run / f"error{rank}").write_text(repr(error))
            finally:
                os._exit(status)
        ranks.append(child)
    return ranks


def end(ranks: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]


def digest(run: Path) -> str:
    return hashlib.sha256((run / f"checkpoints/step_{STEPS:08d}/model.safetensors").read_bytes()).hexdigest()


def wait_for(run: Path, step: int) -> None:
    """Until the run has written the metrics of this step."""
    metrics = run / "metrics.jsonl"
    while step and not (metrics.is_file() and metrics.read_text().count("\n") >= step):
        time.sleep(0.002)


def where(run: Path) -> str:
    """How far a killed run had come, and whether it was killed while it wrote or removed a checkpoint."""
    latest = run / "latest"
    rest = " in the middle of a checkpoint" if any(run.glob("checkpoints/.*")) else ""
    return (latest.read_text().strip() if latest.is_file() else "no checkpoint yet") + rest


def series(folder: Path, processes: int, kills: int, draw: random.Random) -> int:
    """One straight run, then `kills` broken ones; returns how many ended in other bits."""
    straight = folder / f"straight{processes}"
    began = time.monotonic()
    assert end(start(straight, processes)) == [0] * processes
    whole, wanted = time.monotonic() - began, digest(straight)
    print(f"\nprocesses: {processes}. Uninterrupted: {whole:.1f} s, model.safetensors {wanted[:16]}…")
    wrong = missed = 0
    for number in range(1, kills + 1):
        run = folder / f"killed{processes}_{number}"
        ranks = start(run, processes)
        step, delay = draw.randrange(STEPS - 2), draw.uniform(0, 2 * whole / STEPS)
        wait_for(run, step)
        time.sleep(delay)
        os.kill(ranks[-1], signal.SIGKILL)
        missed += -signal.SIGKILL not in end(ranks)  # it had finished already
        state = where(run)
        assert end(start(run, processes)) == [0] * processes
        same = digest(run) == wanted
        wrong += not same
        moment = f"step {step:>2} + {delay * 1e3:3.0f} ms"
        print(f"  kill {number:>2} at {moment} ({state}): {'same bits' if same else 'DIFFERENT'}", flush=True)
    print(f"  {kills - wrong} of {kills} ended in the same bits; {missed} kills came too late to hit a living run")
    return wrong


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(machine())
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        draw = random.Random(1)
        wrong = series(Path(name), 1, kills, draw) + series(Path(name), 2, max(1, kills // 4), draw)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
