"""Every fault we know how to cause: which are survived as docs/reliability.md promises?

    make bench-faults                             everything, two classes at a time; then the table
    python -m bench.faults kills disk             only these
    python -m bench.faults disk --seconds 500     a piece of it; the same command goes on where this ended
    python -m bench.faults --report               the table of what is known so far, written into docs/reliability.md
    python -m bench.faults mistakes --match learn only cases with this in their name

What came of each is kept in runs/bench/faults and holds for the code as it is: the package and the harness of its
class. What did not survive is printed as it is met, and tried again next time. The exit status is 1 if anything did not
survive or has not been tried yet.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from bench.faults import results
from bench.faults.outcome import Trials

CLASSES = ("run_folder", "cache", "kills", "disk", "fuzz", "mistakes")  # the longest first


def load(name: str) -> Trials:
    return import_module(f"bench.faults.{name}").trials


def alone(name: str, match: str, seconds: float) -> None:
    """One class in this process."""
    trials = load(name)(False)
    if match:
        for trial in trials:
            if match in f"{trial.family}: {trial.case}":
                outcome = trial.outcome()
                print(f"{outcome.case}: {outcome.wrong or 'survived'}", flush=True)
        return
    results.go_on(name, trials, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS", help=f"of {', '.join(CLASSES)}; all of them by default")
    parser.add_argument("--processes", type=int, default=2, help="classes at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each class, then stop")
    parser.add_argument("--match", default="", help="try only cases with this in their name, and keep nothing")
    parser.add_argument("--alone", action="store_true", help="one class, in this process")
    parser.add_argument("--report", action="store_true", help="run nothing, write the table")
    options = parser.parse_args()
    if unknown := set(options.classes) - set(CLASSES):
        parser.error(f"no class is called {min(unknown)!r}; there are {', '.join(CLASSES)}")
    classes = options.classes or CLASSES
    if options.alone or options.match:
        for name in classes:
            alone(name, options.match, options.seconds)
        return
    if not options.report:

        def apart(name: str) -> int:
            """In a process of its own, so that none disturbs another."""
            words = ["-m", "bench.faults", name, "--alone", f"--seconds={options.seconds}"]
            return subprocess.run([sys.executable, *words], start_new_session=True).returncode

        with ThreadPoolExecutor(options.processes) as pool:
            if any(list(pool.map(apart, classes))):
                sys.exit("the harness itself failed")
    table, sound = results.report(CLASSES if options.report else classes)
    if options.report:
        results.write(table)
    for failure in (one for name in classes for one in results.failures(name)):
        print(f"{failure.family}: {failure.case}: {failure.wrong}")
    print(f"\n{table}")
    sys.exit(not sound)


if __name__ == "__main__":
    main()
