"""`clearhead serve` on the command line: what it refuses, and the description it writes. tests/serve has the rest."""

import json
import os
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Call

TOKEN = "0123456789abcdef"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--address", "0.0.0.0"), "--address 0.0.0.0: others can reach it, so a token is needed: --token-file F"),
        (("--address", "::"), "--address ::: others can reach it, so a token is needed"),
        (("--address", "192.0.2.7"), "a token is needed"),
        (("--address", "0.0.0.0", "--token-file", "token"), "by which names is it reached? --allow-host NAME:PORT"),
        (("--address", "nowhere.invalid", "--token-file", "token"), "cannot listen on nowhere.invalid:8028"),
        (("--token-file", "short"), "its first line must be 16 to 512 visible ASCII characters"),
        (("--token-file", "missing"), "--token-file missing: No such file or directory"),
        (("--token-file", "pipe"), "its first line must be 16 to 512 visible ASCII characters"),  # nobody writes to it
        (("--allow-host", "http://x/"), "--allow-host 'http://x/': a name as in the Host header is wanted"),
        (("--cors", "*"), "--cors '*': an origin is wanted, such as https://example.org"),
        (("--cors", "https://x/"), "an origin is wanted"),
    ],
)
def test_refuses_in_one_line(
    words: tuple[str, ...], said: str, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(TOKEN)
    Path("short").write_text("secret-123\n")
    os.mkfifo("pipe")
    status, out, err = call("serve", run, "--describe", *words)
    assert (status, out, err.count("\n")) == (2, b"", 1)
    assert said in err
    assert "secret" not in err


def test_runs_that_cannot_be_served(call: Call, run: Path, tmp_path: Path) -> None:
    status, _, err = call("serve", run, run)
    assert (status, err) == (
        2,
        "clearhead: error: two runs are called 'pairs': a run is served by the name of its folder\n",
    )
    status, _, err = call("serve", tmp_path / "nothing")
    assert (status, err.count("\n")) == (2, 1)


def test_a_port_that_is_taken(call: Call, run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, _, err = call("serve", run, "--port", taken.getsockname()[1])
    assert status == 2
    assert "Address already in use; another --port, or 0 for any" in err


def test_the_description(call: Call, run: Path, text_run: Path) -> None:
    status, out, err = call("serve", run, text_run, "--describe", "--port", 0)
    assert (status, err) == (0, "")
    assert {"/v1/completions", "/v1/embeddings", "/translate", "/predict"} <= set(json.loads(out)["paths"])
