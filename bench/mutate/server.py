"""A process that has everything imported and all tests collected, and forks for each mutant: no import is paid twice.

It works in a copy of the project. For each request it forks; the child makes the change, runs the tests it was given in
their order and stops at the first that fails. A change inside a function takes effect by exchanging the code of the
function that is already there; one that runs at import needs a child that has not yet imported the package, so there is
a second process that has only imported what does not change. The changed file is written to the copy as well, for tests
that start processes of their own.
"""

import gc
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from bench.mutate.lines import Lines
from bench.mutate.mutants import PARTS

HEAVY = ["torch", "torch.distributed.fsdp", "torch.testing", "numpy", "hypothesis", "regex", "safetensors.torch"]
HEAVY += ["rich.progress", "typer.testing", "babel.dates", "sacrebleu", "matplotlib.figure", "tomli_w", "transformers"]
MEMORY, FILE = 10 << 30, 1 << 30  # bytes that a mutant may take: some would fill the machine
IDLE = 60  # seconds without any work: it waits for something that will not come
WHOLE = ".py.whole"  # beside a changed file, the file as it was
IMPOSSIBLE = "the code cannot be exchanged"
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not long", "--no-header"]


class Verdict:
    """Plugin: remembers the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} (import)"


class Server(Verdict):
    """Plugin: once all tests are collected, serves requests instead of running them."""

    def __init__(self, requests: Connection) -> None:
        self.requests = requests
        self.living: dict[str, list[FunctionType]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for path in Path("clearhead").rglob("*.py"):  # also what is otherwise imported only when it is needed
            if path.parts[1] in PARTS:
                importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        self.living = living_functions()
        gc.freeze()  # else the first collection in each child would copy all of memory
        self.requests.send(list(items))
        while request := self.requests.recv():
            work = partial(self.record if "record" in request else self.run, items, request)
            self.requests.send(in_child(work, request))
        return True

    def record(self, items: dict[str, pytest.Item], request: dict[str, Any]) -> str:
        """Which lines each test runs, and the seconds of processor time it takes."""
        lines = Lines(str(Path.cwd() / "clearhead") + os.sep, Path(request["record"]))
        chosen = [items[name] for name in request["tests"]]
        chosen[0].config.pluginmanager.register(lines)
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            os.environ["CLEARHEAD_CACHE"] = tempfile.mkdtemp()  # else a test does not make what one before it has made
            lines.around(item, following)
        return ""

    def run(self, items: dict[str, pytest.Item], request: dict[str, Any]) -> str:
        if not request["control"] and not exchange(request["file"], request["source"], self.living):
            return IMPOSSIBLE
        chosen = [items[name] for name in request["tests"]]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return self.failed
        return ""


def exchange(file: str, source: str, living: dict[str, list[FunctionType]]) -> bool:
    """Give the functions of an imported module the code that the changed source has; False if that cannot be done."""
    path = Path.cwd() / file
    old, new = (
        dict(functions(compile(text, str(path), "exec", dont_inherit=True)))
        for text in (path.with_suffix(WHOLE).read_text(), source)
    )
    changed = {place: code for place, code in new.items() if code != old.get(place)}
    found = False
    for one in living.get(str(path), []):
        code = changed.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
        if code is not None:
            if code.co_freevars != one.__code__.co_freevars:
                return False
            one.__code__, found = code, True
    return found


def living_functions() -> dict[str, list[FunctionType]]:
    """The functions that exist, by the file they are from."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def functions(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """The code of every function of a module and of its classes, by name and line."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield (inner.co_qualname, inner.co_firstlineno), inner
            yield from functions(inner)


def fresh(request: dict[str, Any], scratch: str) -> str:
    """Run tests in a process that has not imported the package."""
    verdict = Verdict()
    status = pytest.main([*OPTIONS, "-x", "--basetemp", scratch, *request["tests"]], plugins=[verdict])
    return verdict.failed or ("" if status == 0 else f"pytest ended with {status}")


def in_child(work: Callable[[], str], request: dict[str, Any]) -> dict[str, Any]:
    """What `work` returns, and how it ended: in a process of its own, with limits and with a cache of its own, in which
    no token store lies that was made without the change or with another one."""
    with tempfile.TemporaryDirectory(prefix="mutate-cache-", ignore_cleanup_errors=True) as cache:
        return limited(partial(with_cache, work, cache), request)


def with_cache(work: Callable[[], str], cache: str) -> str:
    tempfile.tempdir = os.environ["CLEARHEAD_CACHE"] = cache
    return work()


def limited(work: Callable[[], str], request: dict[str, Any]) -> dict[str, Any]:
    mine, theirs = Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(quiet, number)
        resource.setrlimit(resource.RLIMIT_CPU, (request["seconds"], request["seconds"] + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        with suppress(BaseException):
            try:
                theirs.send(work())
            except BaseException as error:
                theirs.send(f"{type(error).__name__}: {error}"[:200])
        os._exit(0)
    theirs.close()
    ended, idle = "timeout", 0
    deadline, before = time.monotonic() + 60 + 100 * request["seconds"], ""
    try:
        while time.monotonic() < deadline and idle < IDLE:
            if mine.poll(1):
                ended = mine.recv()
                break
            now = at_work(child)
            idle, before = idle + 1 if now == before else 0, now
    except EOFError:
        ended = "died"
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    if ended == "died" and os.waitstatus_to_exitcode(status) in (-signal.SIGXCPU, -signal.SIGKILL):
        ended = "timeout"
    return {"failed": ended, "seconds": round(used.ru_utime + used.ru_stime, 2)}


def at_work(group: int) -> str:
    """Another word each second as long as one of these processes works or waits for the processor: the time they have
    used, or the clock if one is ready to run. Neighbours may slow a mutant down, but not stop it."""
    used = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of_group, *rest = path.read_text().rpartition(")")[2].split()
            if int(of_group) == group:
                used.append(str(time.monotonic()) if state == "R" else f"{rest[8]} {rest[9]}")
    return " ".join(used)


@contextmanager
def written(request: dict[str, Any]) -> Iterator[None]:
    """The changed file in the copy of the project, and afterwards the whole one again."""
    path = Path(request["file"])
    whole = path.read_text()
    path.with_suffix(WHOLE).write_text(whole)
    path.write_text(request["source"])
    try:
        yield
    finally:
        path.write_text(whole)


def main() -> None:
    """Serve on the connection whose number is given; further arguments are the tests to collect."""
    requests, scratch, tests = Connection(int(sys.argv[1])), sys.argv[2], sys.argv[3:]
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.getcwd())
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    here, there = Pipe()
    if os.fork() == 0:
        here.close()
        requests.close()
        pytest.main([*OPTIONS, "--basetemp", scratch, *tests], plugins=[Server(there)])
        os._exit(0)
    there.close()
    requests.send(here.recv())
    while request := requests.recv():
        if "record" in request:
            here.send(request)
            requests.send(here.recv())
            continue
        with written(request):
            answer = {"failed": IMPOSSIBLE}
            if not request["fresh"]:
                here.send(request)
                answer = here.recv()
            if afresh := answer["failed"] == IMPOSSIBLE:
                answer = in_child(partial(fresh, request, scratch), request)
        requests.send({**answer, "fresh": afresh})  # only now: whoever asked may read the file
    here.send(None)


if __name__ == "__main__":
    main()
