"""Every fault we know how to cause, one after the other: which are survived as docs/reliability.md promises?

`make bench-faults` runs everything; `python -m bench.faults kills disk` only these classes; `--small` the sample that
`make test` runs. What did not survive is printed as it is met, the table at the end. The exit status is 1 if anything
did not survive.
"""

import argparse
import sys
import time
from collections import Counter
from importlib import import_module

from bench.faults.outcome import Run
from clearhead.machine import machine

CLASSES = ("run_folder", "kills", "disk", "fuzz", "mistakes")


def load(name: str) -> Run:
    return import_module(f"bench.faults.{name}").run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help=f"of {', '.join(CLASSES)}; all of them by default")
    parser.add_argument("--small", action="store_true", help="the sample that the tests run")
    options = parser.parse_args()
    unknown = set(options.classes) - set(CLASSES)
    if unknown:
        parser.error(f"no class is called {min(unknown)!r}; there are {', '.join(CLASSES)}")
    tried: Counter[str] = Counter()
    survived: Counter[str] = Counter()
    for name in options.classes or CLASSES:
        start, before = time.perf_counter(), tried.total()
        for outcome in load(name)(options.small):
            tried[outcome.family] += 1
            survived[outcome.family] += outcome.survived
            if not outcome.survived:
                print(f"{outcome.family}: {outcome.case}: {outcome.wrong}", flush=True)
        print(f"{name}: {tried.total() - before} in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    print(f"\n{machine()}\n\n| fault | tried | survived |\n|---|---:|---:|")
    for family, count in tried.items():
        print(f"| {family} | {count} | {survived[family]} |")
    print(f"| all | {tried.total()} | {survived.total()} |")
    sys.exit(tried.total() != survived.total())


if __name__ == "__main__":
    main()
