"""How long a check takes: `python -m tests.learn.timing [EXERCISE…]` checks every answer in a fork of a process that
has torch ready, as the command does, and prints processor times, the slowest first; status 1 if one takes two seconds.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import torch

from clearhead.learn.child import get_ready
from clearhead.learn.exercises import course
from tests.learn.answers import Answer, everything, judge

MOST = 2.0  # seconds


def measured(answer: Answer, folder: Path) -> float:
    """Processor seconds of one check, in a process of its own, so that nothing is remembered from another."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        started = time.process_time()
        judge(answer, folder)
        os.write(writing, str(time.process_time() - started).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return float(said or "inf")


def main() -> int:
    torch.set_num_threads(1)
    get_ready()
    chosen = sys.argv[1:] or list(course())
    answers = [answer for answer in everything() if answer.exercise in chosen]
    with tempfile.TemporaryDirectory() as folder:
        times = sorted(((measured(answer, Path(folder)), str(answer)) for answer in answers), reverse=True)
    for seconds, name in times[:12]:
        print(f"{seconds:6.2f} s  {name}")
    slow = sum(seconds >= MOST for seconds, _ in times)
    print(f"{len(times)} checks, median {times[len(times) // 2][0]:.2f} s, {slow} of {MOST:g} s or more")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main())
