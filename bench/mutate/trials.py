"""Mutants against tests: which tests to run for which mutant, two at a time, and what came of it.

For each mutant the tests that run its line are tried: first the quick ones of its own file and of no part; then one of
each function with parameters before the others, those of its part before those of others, the quickest first; then
quick tests of the same file that do not run the line by themselves, because something remembered what it gave. All are
cut off at a number of seconds of processor time. A mutant that makes the tests run three times as long as they should,
and then some, is found by that. A test that fails counts only if the same tests pass at once without the change.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from bench.mutate.lines import digest
from bench.mutate.mutants import Mutant, mutated

FOLDER = Path("runs/bench/mutate")
FIRST = 3.0  # seconds of tests in a first round: most mutants end here, also those that never would
QUICK = 0.05  # seconds of a test that is worth running before any other
EXTRA = 2.0  # seconds of tests that run the file but not the line


class Trials:
    """Runs mutants and keeps what came of each in `folder`."""

    def __init__(self, folder: Path, tests: list[str], seconds: float, processes: int, control: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.map, self.log = folder / "lines.jsonl", folder / ("control.jsonl" if control else "results.jsonl")
        self.tests, self.seconds, self.processes = tests, seconds, processes
        self.control = control  # no change is made at all
        self.lock, self.copy = threading.Lock(), Path()
        self.results: dict[str, dict[str, Any]] = {}
        for line in read(self.log):
            if self.results.get(line["mutant"], {}).get("outcome") != "killed":
                self.results[line["mutant"]] = line
        self.cost: dict[str, float] = {}  # of each test that can be used
        self.covers: dict[str, dict[str, set[int]]] = {}  # by file and test: lines

    def run(self, sample: list[Mutant]) -> None:
        waiting = [one for one in sample if not self.killed(one)]
        if not waiting:
            return
        with tempfile.TemporaryDirectory(prefix="mutate-") as scratch:
            workers = [Worker(Path(scratch) / str(number), self.tests) for number in range(self.processes)]
            self.copy = workers[0].copy
            for root in self.tests:
                self.record(workers, root)
            each(workers, partial(self.try_all, waiting=waiting))
            for worker in workers:
                worker.stop()

    def killed(self, mutant: Mutant) -> bool:
        return self.results.get(mutant.key, {}).get("outcome") == "killed"

    # ---- which tests run which lines -------------------------------------------------------------------------------

    def record(self, workers: list["Worker"], root: str) -> None:
        """Measure the tests below `root` that are new since the map was made, or whose file has changed."""
        names = [name for name in workers[0].names if name.startswith(root)]
        current = {name: self.exactly(name) for name in names}
        known = {one["test"] for one in read(self.map) if "seconds" in one and current.get(one["test"]) == exact(one)}
        new = [name for name in names if name not in known]
        size = -(-len(new) // len(workers))
        shares = [new[size * number :][:size] for number in range(len(workers))]

        def measure(worker: Worker) -> None:
            if share := shares[workers.index(worker)]:
                print(f"measuring {len(share):,} tests", file=sys.stderr, flush=True)
                worker.ask({"record": str(self.map.resolve()), "tests": share, "seconds": 100_000})

        each(workers, measure)
        for line in read(self.map):
            name = line["test"]
            if current.get(name) != exact(line):
                continue
            if line.get("passed"):
                self.cost[name] = line["seconds"]
            for source, lines in line["lines"].items():
                self.covers.setdefault(f"clearhead/{source}", {}).setdefault(name, set()).update(lines)

    def chosen(self, mutant: Mutant) -> tuple[list[str], bool]:
        """The tests to run, in order, cut off at the seconds there are; and whether in a fresh process: not only what
        runs at import, also what no test runs because it was remembered when the tests were collected."""
        part, stem = mutant.file.split("/")[1], Path(mutant.file).stem
        known = not mutant.at_import or mutant.statement == mutant.body
        place = mutant.statement if known else (1, 10**9)  # nobody knows who uses a constant
        running: list[str] = []
        others: list[str] = []
        for name, lines in self.covers.get(mutant.file, {}).items():
            if name in self.cost:
                hit = any(place[0] <= line <= place[1] for line in lines)
                (running if hit else others).append(name)
        own, near, general = f"tests/{part}/test_{stem}.py", f"tests/{part}/", "tests/test_"
        fresh = mutant.at_import or not running
        if fresh:  # a default or a name may be used by tests that run no line of its file
            always = (name for name in self.cost if name.startswith((own, general)))
            running, others = list(dict.fromkeys([*(running or others), *always])), []
        variants: Counter[str] = Counter()

        def order(name: str) -> tuple[int, int, float]:
            """Quick tests of its own file come first; then, of a test with many parameters, one comes first, the others
            after one of each other test."""
            distance = 0 if name.startswith((own, general)) else 1 if name.startswith(near) else 2
            variants[name.split("[")[0]] += 1
            quick = distance == 0 and self.cost[name] < QUICK
            return 0 if quick else variants[name.split("[")[0]], distance, self.cost[name]

        def first(names: list[str], seconds: float) -> list[str]:
            return within(sorted(sorted(names, key=self.cost.__getitem__), key=order), self.cost, seconds)

        return first(running, self.seconds) + first(others, min(EXTRA, self.seconds)), fresh

    # ---- one mutant after the other --------------------------------------------------------------------------------

    def try_all(self, worker: "Worker", waiting: list[Mutant]) -> None:
        """Take from those that wait until none is left."""
        while True:
            with self.lock:
                if not waiting:
                    return
                mutant, left = waiting.pop(0), len(waiting)
            known = self.results.get(mutant.key, {}).get("passed", [])  # by tests, as they were
            tests, fresh = self.chosen(mutant)
            tests = [name for name in tests if self.exactly(name) not in known]
            if known and not tests:
                continue
            result = {"mutant": mutant.key, "line": mutant.line, **self.trial(worker, mutant, tests, fresh)}
            if result["outcome"] != "killed":
                result["passed"] = [*known, *map(self.exactly, tests)]
            with self.lock:
                self.results[mutant.key] = result
                with open(self.log, "a") as file:
                    file.write(json.dumps(result) + "\n")
                print(f"{left:4} left  {result['outcome']:12} {mutant.file}:{mutant.line}", file=sys.stderr, flush=True)

    def exactly(self, name: str) -> str:
        """The test as it stands in the copy."""
        return f"{name}@{digest(self.copy / name.split('::')[0])}"

    def trial(self, worker: "Worker", mutant: Mutant, tests: list[str], fresh: bool) -> dict[str, Any]:
        if not tests:
            return {"outcome": "not covered", "seconds": 0}
        first = within(tests, self.cost, FIRST)
        used, rounds = 0.0, [first, tests[len(first) :]]
        refuted: list[str] = []  # tests that fail without the change as well
        while rounds:
            names = by_file(rounds.pop(0))
            answer = self.ask(worker, mutant, names, fresh)
            used += answer["seconds"]
            if failed := answer["failed"]:
                run = names[: names.index(failed) + 1] if failed in names else names
                control = self.ask(worker, mutant, run, answer["fresh"], control=True)["failed"]
                if self.control or not control:
                    return {"outcome": "killed", "by": failed, "seconds": round(used, 2), "refuted": refuted}
                refuted.append(control)
                rounds.insert(0, [name for name in names if name != control] if control in names else [])
        return {"outcome": "survived", "seconds": round(used, 2), "refuted": refuted}

    def ask(
        self, worker: "Worker", mutant: Mutant, tests: list[str], fresh: bool, control: bool = False
    ) -> dict[str, Any]:
        """Run these tests with the change, or all the same without it."""
        if not tests:
            return {"failed": "", "seconds": 0.0}
        whole = (worker.copy / mutant.file).read_text()
        return worker.ask(
            {
                "file": mutant.file,
                "source": whole if control or self.control else mutated(whole, mutant),
                "tests": tests,
                "fresh": fresh,
                "control": control or self.control,
                "seconds": int(8 + 3 * sum(self.cost[name] for name in tests)) + 12 * fresh,
            }
        )


class Worker:
    """A server in a copy of the project."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        self.folder, self.copy = folder, folder / "project"
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], text=True).splitlines()
        for file in filter(os.path.isfile, listed):  # what was deleted is listed, too
            (self.copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.copy / file)
        mine, theirs = Pipe()
        data = os.environ.get("CLEARHEAD_DATA", str(Path.cwd().parent / "shared" / "data"))
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.copy),
            "CLEARHEAD_DATA": data,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "bench.mutate.server", str(theirs.fileno()), str(folder / "tmp"), *tests]
        output = open(folder / "output", "w")  # noqa: SIM115 (the server's, as long as it runs)
        self.process = subprocess.Popen(
            command, cwd=self.copy, env=environment, pass_fds=[theirs.fileno()], stdout=output, stderr=output
        )
        theirs.close()
        self.connection: Connection = mine
        self.ready: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """The tests there are, once they are collected."""
        if self.ready is None:
            self.ready = self.receive()
        return self.ready

    def receive(self) -> Any:
        try:
            return self.connection.recv()
        except EOFError:
            raise SystemExit(f"the tests cannot be run:\n{(self.folder / 'output').read_text()[-3000:]}") from None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.names
        self.connection.send(request)
        return self.receive()

    def stop(self) -> None:
        self.connection.send(None)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def each(workers: list[Worker], work: Any) -> None:
    """Do it with all workers at once."""
    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def within(names: Iterable[str], cost: dict[str, float], seconds: float) -> list[str]:
    """As many of these, from the first on, as take so many seconds; the first in any case."""
    kept: list[str] = []
    for name in names:
        if kept and sum(cost[one] for one in kept) + cost[name] > seconds:
            break
        kept.append(name)
    return kept


def by_file(names: list[str]) -> list[str]:
    """The same tests with those of a file together, so that its fixtures are made once."""
    files = list(dict.fromkeys(name.split("::")[0] for name in names))
    return sorted(names, key=lambda name: files.index(name.split("::")[0]))


def exact(line: dict[str, Any]) -> str:
    """Which test a line of the map is about, as it stood."""
    return f"{line['test']}@{line['digest']}"


def read(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file; one that was cut off by an interruption is left out."""
    lines = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines
