"""Every fault we know how to cause: which are survived as docs/reliability.md promises?

`make bench-faults` runs everything, two classes at a time; `python -m bench.faults kills disk` only these; `--small`
the sample that `make test` runs. What did not survive is printed as it is met, the table at the end. The exit status
is 1 if anything did not survive.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import import_module

from bench.faults.outcome import Outcome, Run
from clearhead.machine import machine

CLASSES = ("run_folder", "kills", "disk", "fuzz", "mistakes")  # the longest first


def load(name: str) -> Run:
    return import_module(f"bench.faults.{name}").run


class Tally:
    """What has been tried so far, by family."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.survived: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        self.tried[outcome.family] += 1
        self.survived[outcome.family] += outcome.survived
        if not outcome.survived:
            print(f"{outcome.family}: {outcome.case}: {outcome.wrong}", flush=True)

    def table(self) -> str:
        rows = [f"| {family} | {count:,} | {self.survived[family]:,} |" for family, count in self.tried.items()]
        rows.append(f"| all | {self.tried.total():,} | {self.survived.total():,} |")
        return "\n".join(["| fault | tried | survived |", "|---|---:|---:|", *rows])


def apart(name: str, small: bool, met: Callable[[Outcome], None]) -> None:
    """One class in a process of its own, which tells of each outcome in a line."""
    command = [sys.executable, "-m", "bench.faults", name, "--lines", *(["--small"] if small else [])]
    start, count = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            met(Outcome(**json.loads(line)))
            count += 1
    if process.returncode:
        met(Outcome(name, "the harness itself", f"ended with {process.returncode}"))
    print(f"{name}: {count:,} in {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help=f"of {', '.join(CLASSES)}; all of them by default")
    parser.add_argument("--small", action="store_true", help="the sample that the tests run")
    parser.add_argument("--processes", type=int, default=2, help="classes at a time")
    parser.add_argument("--lines", action="store_true", help="print each outcome as JSON and no table")
    options = parser.parse_args()
    unknown = set(options.classes) - set(CLASSES)
    if unknown:
        parser.error(f"no class is called {min(unknown)!r}; there are {', '.join(CLASSES)}")
    classes = options.classes or CLASSES
    if options.lines:
        for name in classes:
            for outcome in load(name)(options.small):
                print(json.dumps(asdict(outcome)), flush=True)
        return
    tally = Tally()
    with ThreadPoolExecutor(options.processes) as pool:
        for done in [pool.submit(apart, name, options.small, tally.add) for name in classes]:
            done.result()
    print(f"\n{machine()}\n\n{tally.table()}")
    sys.exit(tally.tried.total() != tally.survived.total())


if __name__ == "__main__":
    main()
