"""`clearhead explore`: serves the page until interrupted, or writes it into one file."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Call


def test_serves_the_page_until_interrupted(run: Path) -> None:
    words = [sys.executable, "-m", "clearhead", "explore", str(run), "--no-browser", "--port", "0", "--text", "a b&c"]
    served = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert served.stderr is not None
        line = served.stderr.readline()
        found = re.search(r"is open at (http://127\.0\.0\.1:\d+/)#text=a\+b%26c  \(Ctrl-C ends it\)", line)
        assert found is not None, line
        page = urllib.request.urlopen(found[1], timeout=20).read().decode()
        token = re.search(r'name="clearhead-token" content="([\w-]{20,})"', page)
        assert token is not None
        headers = {"content-type": "application/json", "x-clearhead-token": token[1]}
        asked = urllib.request.Request(f"{found[1]}api/pass", b'{"text": "the cat"}', headers)
        made = json.load(urllib.request.urlopen(asked, timeout=20))
        assert made["kind"] == "encoder-decoder"
        assert made["answer"]
        served.send_signal(signal.SIGINT)
        assert served.wait(20) in (0, 130)
        assert "Traceback" not in served.stderr.read()
    finally:
        served.kill()
        served.wait()


def test_one_file(call: Call, run: Path, text_run: Path, tmp_path: Path) -> None:
    for number, (one, text) in enumerate(((run, "the cat"), (text_run, "the"))):
        path = tmp_path / f"{number}.html"
        status, out, err = call("explore", one, "--text", text, "-o", path)
        assert (status, out) == (0, b"")
        assert re.fullmatch(rf"wrote {path} \(0\.\d MB; it computes by itself\)\n", err)
        assert 'id="clearhead-tensors"' in path.read_text()


def test_attention_as_a_page(call: Call, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "heads.html"
    status, _, err = call("attention", run, "the cat", "--kind", "masked", "--layer", "1", "-o", path)
    assert (status, err) == (0, f"wrote {path}\n")
    assert '"begin":"view=look&at=decoder.1.self.1"' in path.read_text()
    status, _, err = call("attention", run, "the cat", "--layer", "9", "-o", tmp_path / "x.html")
    assert (status, err.count("\n")) == (2, 1)
    assert "no attention of --layer 9" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "page.txt"], "cannot write page.txt: a page is wanted, x.html"),
        (["--text", "x" * 9000, "-o", "page.html"], "the text has 9,000 letters; at most 8,000 are read"),
        (["--checkpoint", "step_9", "-o", "page.html"], "has no checkpoint step_00000009"),
    ],
)
def test_refuses_in_one_line(
    call: Call, run: Path, words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = call("explore", run, *words)
    assert (status, out) == (2, b"")
    assert said in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken(call: Call, run: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, _, err = call("explore", run, "--no-browser", "--port", port)
    assert status == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in err


def test_the_file_needs_no_extra_and_the_server_says_which(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert call("explore", run, "-o", tmp_path / "page.html")[0] == 0
    status, _, err = call("explore", run, "--no-browser")
    assert status == 2
    assert "pip install 'clearhead[serve]'" in err
