"""Which lines of the package does each test run? A plugin that follows them, and writes one JSON object for each test.

What a fixture of a module or a session does is counted for every test that uses it, though it happens in the first. In
processes that a test forks, lines are written as they are met, because such a process may end at any moment.
"""

import hashlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

Found = dict[str, set[int]]
LONGEST = 6  # seconds of processor time: a slower test is not worth running for a mutant


def too_slow(number: int, frame: FrameType | None) -> None:
    pytest.fail("too slow to be run for each mutant")


@cache
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def processor_time() -> float:
    """Of this process and of those it has started and seen the end of."""
    return sum(os.times()[:4])


class Lines:
    """Follows code whose file's name begins with `prefix`."""

    def __init__(self, prefix: str, into: Path) -> None:
        self.prefix, self.file = prefix, open(into, "a", buffering=1)  # noqa: SIM115 (open as long as the process)
        self.left: dict[int, tuple[CodeType, set[int]]] = {}  # lines of each code not yet met in this test
        self.setups: dict[Any, Found] = {}  # by fixture
        self.test, self.process, self.failed = "", os.getpid(), False

    def enter(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        known = self.left.get(id(code))
        if known is None:
            ours = code.co_filename.startswith(self.prefix)
            known = (code, {line for *_, line in code.co_lines() if line} if ours else set())
            self.left[id(code)] = known
        return self.step if known[1] else None

    def step(self, frame: FrameType, event: str, argument: object) -> Any:
        left = self.left.get(id(frame.f_code))
        if event == "line" and left is not None and frame.f_lineno in left[1]:
            left[1].discard(frame.f_lineno)
            if os.getpid() != self.process:
                self.write(lines={frame.f_code.co_filename[len(self.prefix) :]: [frame.f_lineno]})
            if not left[1]:
                return None
        return self.step

    def met(self) -> Found:
        found: Found = {}
        for code, left in list(self.left.values()):  # what stands below is followed, too, where a fixture was made
            if code.co_filename.startswith(self.prefix):
                lines = {line for *_, line in code.co_lines() if line} - left
                found.setdefault(code.co_filename[len(self.prefix) :], set()).update(lines)
        return found

    def write(self, **what: object) -> None:
        self.file.write(
            json.dumps({"test": self.test, "digest": digest(Path(self.test.split("::")[0])), **what}) + "\n"
        )

    def around(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run one test and write what it met."""
        self.test, self.left, self.failed = item.nodeid, {}, False
        started = processor_time()
        signal.signal(signal.SIGPROF, too_slow)
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        sys.settrace(self.enter)
        threading.settrace(self.enter)
        try:
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)
        seconds = processor_time() - started
        found = self.met()
        for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            for definition in definitions:
                for file, lines in self.setups.get(id(definition), {}).items():
                    found.setdefault(file, set()).update(lines)
        sorted_lines = {file: sorted(numbers) for file, numbers in found.items() if numbers}
        self.write(seconds=round(seconds, 3), passed=not self.failed, lines=sorted_lines)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outer, self.left = self.left, {}
        try:
            return (yield)
        finally:
            kept = self.setups.setdefault(id(fixturedef), {})
            for file, lines in self.met().items():
                kept.setdefault(file, set()).update(lines)
            self.left = outer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.outcome != "passed"
