"""A million lines through every filter: as many lines out as in, and no more memory than a quarter of them takes.

`make bench-million`. Models of random weights, as small as they come: what is measured is what the filters hold on to.
"""

import sys
import tempfile
import time
from pathlib import Path

from bench.faults.forked import call
from bench.faults.run_folder import prepare
from clearhead.machine import machine

LINES = 1_000_000
FILTERS = {
    "translate": ("pairs", "translate whole many.txt --beam-size 1 --set max_extra=1"),
    "score": ("pairs", "score whole --source many.txt --target many.txt"),
    "encode": ("counts", "encode whole many.txt --mean"),
    "encode -o": ("counts", "encode whole many.txt --mean -o vectors.npy --force"),
    "tokenizer encode": ("text", "tokenizer encode whole many.txt"),
}


def measured(folder: Path, name: str, count: int) -> tuple[int, int, float]:
    """Lines out, peak memory and seconds of a filter on so many lines; `encode -o` writes rows."""
    kind, words = FILTERS[name]
    if not (folder / kind).exists():
        prepare(folder / kind, kind)
    with open(folder / kind / "many.txt", "w") as file:
        file.writelines(f"{n % 6} {n // 6 % 6} " * (100 if kind == "text" else 1) + "\n" for n in range(count))
    start = time.perf_counter()
    ended = call(words.split(), folder=folder / kind, patience=6 * 3600)
    seconds = time.perf_counter() - start
    if ended.status != 0:
        raise RuntimeError(f"clearhead {words}: {ended.err[-500:]}")
    if "-o" in words:
        import numpy

        return len(numpy.load(folder / kind / "vectors.npy", mmap_mode="r")), ended.peak, seconds
    return ended.out.count(b"\n"), ended.peak, seconds


def main() -> None:
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    print(f"{machine()}\n\n| filter | lines in | lines out | peak | peak at a quarter | seconds |")
    print("|---|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as name:
        for title in FILTERS:
            _, before, _ = measured(Path(name), title, lines // 4)
            out, peak, seconds = measured(Path(name), title, lines)
            sizes = f"{peak / 2**20:,.0f} MiB | {before / 2**20:,.0f} MiB"
            print(f"| {title} | {lines:,} | {out:,} | {sizes} | {seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
