"""Do the tests notice when the code is wrong? It is changed a little, again and again, and tests run until one fails.

    make mutate                                                  40 changes to the lines that differ from main
    python -m bench.mutate --since HEAD~5 --sample 40 --seed 1   … or from another revision
    python -m bench.mutate --whole --sample 400 --seed 20261118  a sample of model, decoding, tokenizer, training, data
    python -m bench.mutate --control --whole --sample 100        the same without any change: every test must pass
    python -m bench.mutate --table                               the equivalent ones, as docs/reliability.md lists them

Which tests run which lines is measured first and kept in runs/bench/mutate, as are the results: an interrupted run goes
on where it was, and after tests were added, those that survived are tried again. The exit status is 1 if any change
survives that bench/mutate/equivalent.toml does not list.
"""

import argparse
import random
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

from bench.mutate.mutants import PARTS, Mutant, mutants
from bench.mutate.trials import FOLDER, Trials

TESTS = [f"tests/{part}" for part in (*PARTS, "interop", "cost", "cli")] + [
    f"tests/test_{name}.py" for name in ("defaults", "lazy", "reading", "run", "settings")
]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout


def changed_lines(since: str) -> dict[str, set[int]]:
    """Lines of each file that are not in that revision."""
    found: dict[str, set[int]] = {}
    file = ""
    for line in git("diff", "-U0", "--no-color", since, "--", *(f"clearhead/{part}" for part in PARTS)).splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif header := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(header[1]), int(header[2] or 1)
            found.setdefault(file, set()).update(range(start, start + count))
    return found


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """The sample: the same for the same code, seed and size."""
    files = [file for part in PARTS for file in git("ls-files", f"clearhead/{part}/*.py").split()]
    if options.whole:
        everything = mutants(Path(), files)
    else:
        since = options.since or git("merge-base", "main", "HEAD").strip()
        changed = changed_lines(since)
        everything = [
            one for one in mutants(Path(), [f for f in files if f in changed]) if one.line in changed[one.file]
        ]
    print(f"{len(everything):,} mutants; seed {options.seed}", file=sys.stderr)
    return random.Random(options.seed).sample(everything, min(options.sample, len(everything)))


def equivalents() -> dict[str, str]:
    """The reason of each mutant that changes nothing which could be noticed, by its key."""
    return {one["mutant"]: one["reason"] for one in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])}


def table() -> None:
    print("| file | line | change | why it is equivalent |\n|---|---|---|---|")
    for key, reason in sorted(equivalents().items()):
        file, source, _, change, _ = " ".join(key.split()).replace("|", "\\|").split(" \\| ")
        print(f"| {file.removeprefix('clearhead/')} | `{source}` | `{change}` | {reason} |")


def report(sample: list[Mutant], results: dict[str, dict]) -> int:
    """The survivors as a diff, then the count; how many there are that nobody has explained."""
    known, count, unknown = equivalents(), Counter[str](), 0
    for mutant in sample:
        result = results.get(mutant.key)
        outcome = "not run" if result is None else result["outcome"]
        if outcome in ("survived", "not covered") and mutant.key in known:
            outcome = "equivalent"
        count[outcome] += 1
        if outcome in ("survived", "not covered"):
            unknown += 1
            print(f"\n{outcome}: {mutant.file}:{mutant.line} ({mutant.operator})\n  {mutant.source}")
            print(f"  - {mutant.before}\n  + {mutant.after}\n  {mutant.key}")
    tried = count.total() - count["equivalent"] - count["not run"]
    print(f"\n{dict(count)}")
    print(f"{unknown} of {tried} that are not equivalent survived: {unknown / max(1, tried):.1%}")
    return unknown


def report_control(sample: list[Mutant], results: dict[str, dict]) -> int:
    """How many sets of tests failed though nothing was changed."""
    known = [results[mutant.key] for mutant in sample if mutant.key in results]
    failed = [result for result in known if result["outcome"] == "killed"]
    for result in failed:
        print(f"failed without any change: {result['by']}")
    print(f"{len(known)} sets of tests run without a change, {len(failed)} failed")
    return len(failed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", help="the revision to compare with; by default where this branch left main")
    parser.add_argument("--whole", action="store_true", help="all lines, not only those that changed")
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=15, help="of tests for each mutant, processor time")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="only mutants of files whose name begins so")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="where to look for tests")
    parser.add_argument(
        "--table", action="store_true", help="print the equivalent mutants as a table, and nothing else"
    )
    parser.add_argument("--report", action="store_true", help="print what is known of this sample, and run nothing")
    parser.add_argument("--control", action="store_true", help="change nothing: whatever fails then is no proof")
    options = parser.parse_args()
    if options.table:
        table()
        return
    sample = drawn(options)
    trials = Trials(FOLDER, options.tests, options.seconds, options.processes, options.control)
    if not options.report:
        trials.run([mutant for mutant in sample if mutant.file.startswith(options.only)])
    if options.control:
        sys.exit(report_control(sample, trials.results) > 0)
    sys.exit(report(sample, trials.results) > 0)


if __name__ == "__main__":
    main()
