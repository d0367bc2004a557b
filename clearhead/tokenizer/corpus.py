"""Counting the words of a corpus that need not fit in memory, on all cores.

Learning merges needs only how often each distinct word occurs. Files are read in blocks, and each block ends where
every pattern ends a word, so that the counts are those of the whole text. Blocks are counted by worker processes;
since counts are added up, neither the number of workers nor the order in which they finish changes anything.
"""

import codecs
import ctypes
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, TypeVar

from clearhead.errors import InputError
from clearhead.reading import opened
from clearhead.tokenizer.split import Splitter

Item = TypeVar("Item")
Result = TypeVar("Result")

BLOCK = 1 << 20  # bytes read at once, and characters given to a worker at once
LARGEST = 16 * BLOCK  # a text without any place to cut is cut here all the same

# After a letter or digit and before white space, or after a single line end and before a letter or digit: no pattern
# of ours has a word that spans such a place, or that would end elsewhere if the text ended there.
_CUT = re.compile(r"(?<=[^\W_])(?=[ \t\r\n])|(?<=\S\n)(?=[^\W_])")

# A forked worker starts at once. A spawned one runs the caller's script again, so it has to be asked for.
_CAN_FORK = sys.platform == "linux"


def read_texts(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    """The texts of files, in blocks; "-" is standard input. Bytes that are no UTF-8 stay as surrogate escapes."""
    for path in paths:
        if str(path) != "-":
            with opened(path) as file:
                yield from blocks(file)
            continue
        try:
            yield from blocks(sys.stdin.buffer)
        except OSError as error:
            raise InputError(f"cannot read standard input: {error.strerror}") from None


def blocks(file: BinaryIO, errors: str = "surrogateescape") -> Iterator[str]:
    """A text in blocks, each of which ends where every pattern ends a word."""
    utf8 = codecs.getincrementaldecoder("utf-8")(errors)
    held = ""  # read, but not yet cut off
    while data := file.read(BLOCK):
        held += utf8.decode(data)
        if len(held) < BLOCK:
            continue
        cut = _last_cut(held)
        if not cut and len(held) < LARGEST:
            continue
        cut = cut or len(held)
        yield held[:cut]
        held = held[cut:]
    held += utf8.decode(b"", final=True)
    if held:
        yield held


def _last_cut(text: str) -> int:
    """The last place where the text may be cut, or 0; near the end first, because there nearly always is one."""
    for start in (max(0, len(text) - 4096), 0):
        if cuts := [match.start() for match in _CUT.finditer(text, start)]:
            return cuts[-1]
    return 0


def count_words(
    texts: Iterable[str],
    pattern: str,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Counter[str]:
    """How often each word occurs; `progress` is told the number of characters counted, now and then."""
    counts: Counter[str] = Counter()
    for found, size in in_order(partial(_count, pattern), _batches(texts), workers):
        counts.update(found)
        if progress is not None:
            progress(size)
    return counts


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Iterator[tuple[Result, int]]:
    """What `work` makes of each item, in order, by several processes, and the size of the item. The queue is bounded:
    items are read no faster than they are worked on. One item alone is worked on here."""
    left = iter(items)
    first = list(islice(left, 2))
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if _CAN_FORK else 1
    # a daemonic process, such as a worker of multiprocessing.Pool, may not start others
    if workers == 1 or len(first) < 2 or multiprocessing.current_process().daemon:
        for item in chain(first, left):
            yield work(item), size_of(item)
        return
    method = "fork" if _CAN_FORK else "spawn"
    pending: deque[tuple[Future[Result], int]] = deque()
    with ProcessPoolExecutor(workers, multiprocessing.get_context(method), _work_on, (work,)) as pool:
        for item in chain(first, left):
            pending.append((pool.submit(_worked_on, item), size_of(item)))
            while len(pending) > 2 * workers:
                future, size = pending.popleft()
                yield future.result(), size
        for future, size in pending:
            yield future.result(), size


def size_of(item: Any) -> int:
    return sum(map(len, item)) if isinstance(item, list) else item.size


_WORK: list[Callable[[Any], Any]] = []  # in a worker: what it was started for; sent along with each item it would cost


def _work_on(work: Callable[[Any], Any]) -> None:
    """In a worker, which ends with the process that started it however that ends, and leaves Ctrl-C to it."""
    _WORK[:] = [work]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if _CAN_FORK:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it would else wait for work for ever


def _worked_on(item: Any) -> Any:
    return _WORK[0](item)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in groups of about one block, enough for a worker to be worth asking."""
    batch: list[str] = []
    size = 0
    for text in chain.from_iterable(map(parts, texts)):
        batch.append(text)
        size += len(text)
        if size >= BLOCK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def parts(text: str) -> Iterator[str]:
    """A long text in several, so that it does not keep one worker busy while the others wait."""
    start = 0
    while len(text) - start > 2 * BLOCK and (cut := _CUT.search(text, start + BLOCK)):
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def _count(pattern: str, texts: list[str]) -> dict[str, int]:
    return dict(Counter(chain.from_iterable(map(Splitter(pattern), texts))))
