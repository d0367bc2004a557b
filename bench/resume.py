"""Kill a run with SIGKILL twenty times at random moments, resume it each time: does it end in the same bits?

`make bench-resume` (or `python -m bench.resume 20`). One run is left alone; twenty others are each killed once, at a
moment drawn evenly over its whole life (start, updates, validations, checkpoints), and started again with the same
command. Dropout is on. Then the same with two processes under torchrun, all of whose workers are killed.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import machine

RECIPE = """
[model]
preset = "tiny"
d_model = 32
heads = 2
d_ff = 64
encoder_layers = 1
decoder_layers = 1
[data]
task = "copy"
examples = 2000
held_out = 200
[training]
steps = 150
max_tokens = 256
warmup = 20
peak = 3e-3
label_smoothing = 0.1
validate_every = 15
checkpoint_every = 5
threads = 1
samples = 0
"""


def command(recipe: Path, run: Path, processes: int) -> list[str]:
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*start, "-m", "clearhead", "train", str(recipe), "--into", str(run)]


def go(recipe: Path, run: Path, processes: int, kill_after: float | None = None) -> float:
    """Run the command; kill it and its workers after so many seconds, if given. Returns the time taken."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    job = subprocess.Popen(
        command(recipe, run, processes), env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, shown = job.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        for process in [job.pid, *children(job.pid)]:  # torchrun's workers have groups of their own
            os.kill(process, signal.SIGKILL)
        job.communicate()
        return time.monotonic() - began
    if job.returncode:
        raise SystemExit(f"the run failed with status {job.returncode}:\n{shown}")
    return time.monotonic() - began


def children(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(line) for line in found.split()]


def state(run: Path) -> str:
    """Where a killed run was when it died."""
    latest = run / "latest"
    rest = [path.name for path in run.glob("checkpoints/.*")]
    return (latest.read_text().strip() if latest.is_file() else "no checkpoint yet") + (f", {rest[0]}" if rest else "")


def digest(run: Path) -> str:
    return hashlib.sha256((run / "checkpoints/step_00000150/model.safetensors").read_bytes()).hexdigest()


def series(folder: Path, recipe: Path, processes: int, kills: int, draw: random.Random) -> int:
    """One straight run, then `kills` broken ones; returns how many ended in other bits."""
    straight = folder / f"straight{processes}"
    whole = go(recipe, straight, processes)
    wanted = digest(straight)
    print(f"\nprocesses: {processes}. Uninterrupted: {whole:.1f} s, model.safetensors {wanted[:16]}…")
    wrong = early = 0
    for number in range(1, kills + 1):
        run = folder / f"killed{processes}_{number}"
        moment = draw.uniform(0.1, 0.95) * whole
        go(recipe, run, processes, kill_after=moment)
        where = state(run)
        early += where.startswith("no checkpoint")
        go(recipe, run, processes)
        same = digest(run) == wanted
        wrong += not same
        print(f"  kill {number:>2} after {moment:5.1f} s ({where}): {'same bits' if same else 'DIFFERENT'}", flush=True)
    print(f"  {kills - wrong} of {kills} ended in the same bits ({early} were killed before their first checkpoint)")
    return wrong


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipe = folder / "kill.toml"
        recipe.write_text(RECIPE)
        draw = random.Random(1)
        wrong = series(folder, recipe, 1, kills, draw) + series(folder, recipe, 2, max(1, kills // 4), draw)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
