"""Checks in a process apart: the learner's code can hang, exit or print, and nothing here is touched.

The first check starts a server that imports torch; every check is then a fork of it, so that watching is quick.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import clearhead
from clearhead.learn.verdict import BROKEN, Verdict

Progress = Callable[[int, int, str], None]


class Checker:
    """Holds the server; `with Checker() as checker: checker.check(folder, "attention")`."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Checker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.server is not None:
            for stream in (self.server.stdin, self.server.stdout):
                if stream is not None:
                    stream.close()
            self.server.kill()
            self.server.wait()
            self.server = None

    def warm(self) -> subprocess.Popen[str]:
        """The server, started if there is none."""
        if self.server is None or self.server.poll() is not None:
            root = str(Path(clearhead.__file__).resolve().parents[1])
            path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
            self.server = subprocess.Popen(
                [sys.executable, "-P", "-m", "clearhead.learn.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            )
        return self.server

    def check(
        self,
        folder: Path,
        exercise: str,
        own: Sequence[str] = (),
        progress: Progress | None = None,
        **more: Any,
    ) -> Verdict:
        """The verdict on the learner's file of an exercise; earlier exercises named in `own` are the learner's."""
        server = self.warm()
        request = {"folder": str(folder.resolve()), "exercise": exercise, "own": list(own), **more}
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return self._answer(server.stdout, exercise, progress)

    def _answer(self, lines: IO[str], exercise: str, progress: Progress | None) -> Verdict:
        verdict: Verdict | None = None
        for line in lines:
            row = json.loads(line)
            if "progress" in row and progress is not None:
                progress(*row["progress"])
            elif "verdict" in row:
                verdict = Verdict.from_json(row["verdict"])
                if not hasattr(os, "fork"):
                    return verdict
            elif "failed" in row:
                raise RuntimeError(row["failed"])
            elif "ended" in row:
                return verdict or Verdict(
                    exercise, BROKEN, "", "ended", f"no answer: {row['ended'] or 'it just ended'}"
                )
        return verdict or Verdict(exercise, BROKEN, "", "ended", "no answer: the process that checks has ended")
