"""A million lines through every filter: as many lines out as in, and no more memory than a quarter of them takes.

`make bench-million`, or `python -m bench.million 1000000 predict` for some of them. Models of random weights, as small
as they come: what is measured is what the filters hold on to.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.faults.run_folder import prepare
from clearhead.machine import machine

LINES = 1_000_000
FILTERS = {
    "translate": ("pairs", "translate whole many.txt --beam-size 1 --set max_extra=1"),
    "score": ("pairs", "score whole --source many.txt --target many.txt"),
    "predict": ("labels", "predict whole many.txt"),
    "encode": ("counts", "encode whole many.txt --mean"),
    "encode -o": ("counts", "encode whole many.txt --mean -o vectors.npy --force"),
    "tokenizer encode": ("text", "tokenizer encode whole many.txt"),
}
# A process is charged with the memory of the one it is forked from, so it is started by one that has next to none.
STARTER = """
import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)
os.write(2, f"\\n{used.ru_maxrss}".encode())
sys.exit(os.waitstatus_to_exitcode(status) % 256)
"""


def measured(folder: Path, name: str, count: int) -> tuple[int, int, float]:
    """Lines out, peak memory and seconds of a filter on so many lines; `encode -o` writes rows."""
    kind, words = FILTERS[name]
    if not (folder / kind).exists():
        prepare(folder / kind, kind)
    with open(folder / kind / "many.txt", "w") as file:
        file.writelines(f"{n % 6} {n // 6 % 6} " * (100 if kind == "text" else 1) + "\n" for n in range(count))
    start = time.perf_counter()
    peak = peak_of(words.split(), folder / kind)
    seconds = time.perf_counter() - start
    if "-o" in words:
        import numpy

        return len(numpy.load(folder / kind / "vectors.npy", mmap_mode="r")), peak, seconds
    with open(folder / kind / "out.txt", "rb") as out:
        return sum(1 for _ in out), peak, seconds


def peak_of(words: list[str], folder: Path) -> int:
    """`clearhead words…` in a process of its own, its output in out.txt: bytes in memory at most."""
    command = [sys.executable, "-S", "-c", STARTER, sys.executable, "-m", "clearhead", *words]
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    with open(folder / "out.txt", "wb") as out:
        ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, cwd=folder, env=environment, check=False)
    said, _, kilobytes = ended.stderr.decode().rpartition("\n")
    if ended.returncode:
        raise RuntimeError(f"clearhead {' '.join(words)}: {said[-500:]}")
    return 1024 * int(kilobytes)


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    print(f"{machine()}\n\n| filter | lines in | lines out | peak | peak at a quarter | seconds |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        for title in sys.argv[2:] or FILTERS:
            _, before, _ = measured(Path(name), title, lines // 4)
            out, peak, seconds = measured(Path(name), title, lines)
            sizes = f"{peak / 2**20:,.0f} MiB | {before / 2**20:,.0f} MiB"
            print(f"| {title} | {lines:,} | {out:,} | {sizes} | {seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
