"""A real server process on loopback, over small runs of every kind."""

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

from tests.decoding.models import byte_tokenizer, opinionated, small_run, write_run

JSON = {"content-type": "application/json"}
# one for all: a client of its own reads all certificates of the machine for each request
ask = httpx.Client(timeout=60, verify=False, limits=httpx.Limits(max_keepalive_connections=0))


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
        return ask.post(self.url + path, json=body, **more)


def labelled_run(path: Path) -> Path:
    """A run as training on labels leaves it."""
    tokenizer = byte_tokenizer()
    shape: dict[str, Any] = {"kind": "encoder", "head": {"kind": "pooled", "classes": 3, "bias": True}}
    model = opinionated(3, "tiny", 1.5, vocab_size=tokenizer.size, **shape).float()
    table = {"labelled": "films.tsv", "labels": ["bad", "good", "dull"], "max_length": 32}
    return write_run(path, model, tokenizer, data=table)


def write_runs(folder: Path) -> list[Path]:
    """pairs translates, text goes on, vectors encodes, endless goes on without end, and films have labels."""
    return [
        small_run(folder / "pairs", "encoder-decoder", decoding={"max_source": 48, "max_extra": 8, "beam_size": 3}),
        small_run(folder / "text", "decoder", data={"text": "x", "documents": "line"}, decoding={"max_tokens": 20}),
        small_run(folder / "vectors", "encoder"),
        small_run(folder / "endless", "decoder", data={"text": "x", "documents": "none"}),
        labelled_run(folder / "films"),
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


def refused(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    said = answer.json()["error"]["message"]
    assert "\n" not in said
    assert "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    return str(said)
