"""A real server process on loopback, over small runs of the three kinds."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.decoding.models import small_run


@dataclass
class Served:
    """A process, where it answers, and what it has said."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def said(self) -> str:
        return self.log.read_text()

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, **more)


def write_runs(folder: Path) -> list[Path]:
    """pairs translates, text goes on, vectors encodes, and endless goes on without end."""
    return [
        small_run(folder / "pairs", "encoder-decoder", decoding={"max_source": 48, "max_extra": 8, "beam_size": 3}),
        small_run(folder / "text", "decoder", data={"text": "x", "documents": "line"}, decoding={"max_tokens": 20}),
        small_run(folder / "vectors", "encoder"),
        small_run(folder / "endless", "decoder", data={"text": "x", "documents": "none"}),
    ]


@contextmanager
def serving(runs: Sequence[Path], *options: str) -> Iterator[Served]:
    words = [sys.executable, "-m", "clearhead", "serve", *map(str, runs), "--port", "0", *options]
    with tempfile.NamedTemporaryFile("wb", suffix=".log", delete=False) as log:
        process = subprocess.Popen(words, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
    path = Path(log.name)
    try:
        for _ in range(600):
            found = re.search(r"serving .* at (http://\S+)", path.read_text())
            if found or process.poll() is not None:
                break
            time.sleep(0.1)
        assert found, path.read_text()
        yield Served(process, found[1], path)
    finally:
        process.kill()
        process.wait()
        path.unlink()
