"""Prompts in a terminal, tried in a real pseudo-terminal: history, streaming, Ctrl-C and Ctrl-D."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest

import clearhead
from clearhead.cli.interactive import converse
from clearhead.decoding.streaming import stream_translation
from clearhead.errors import visible
from tests.cli.conftest import Call

UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Any]:
    opened: list[Any] = []

    def spawn(*words: object) -> Any:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "TERM": "dumb", "OMP_NUM_THREADS": "1"}
        command = ["-m", "clearhead", *map(str, words)]
        child = pexpect.spawn(sys.executable, command, encoding="utf-8", timeout=60, env=environment)
        child.setwinsize(50, 300)
        opened.append(child)
        return child

    yield spawn
    for child in opened:
        child.close(force=True)


def test_generate_is_a_prompt_with_history(terminal: Any, text_run: Path, tmp_path: Path) -> None:
    model = clearhead.load(text_run)
    texts = [model.generate("the cat", seed=seed)[0].text for seed in (0, 1)]
    wanted = [visible("the cat" + text, keep="\n\t") for text in texts]
    child = terminal("generate", text_run, "--interactive")
    child.expect_exact("> ")
    child.sendline("the cat")
    child.expect_exact("the cat\r\n")
    child.expect_exact(wanted[0].split("\n")[0])
    child.expect_exact("\r\n> ")
    child.send(UP)  # the same again, with the next seed
    child.expect_exact("the cat")
    child.sendline("")
    child.expect_exact(wanted[1].split("\n")[0])
    child.expect_exact("\r\n> ")
    child.send("half a line" + CTRL_C)
    child.expect_exact("> ")
    child.send(CTRL_D)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert (tmp_path / "state" / "clearhead" / "history").read_text().split() == ["the", "cat"]
    again = terminal("generate", text_run, "-i")
    again.expect_exact("> ")
    again.send(UP)
    again.expect_exact("the cat")


def test_translate_in_a_terminal_is_one_too(terminal: Any, run: Path) -> None:
    model = clearhead.load(run)
    wanted = model.translate(["the cat"], beam_size=1)[0].text
    assert "".join(stream_translation(model, "the cat", beam_size=1)) == wanted
    assert "".join(stream_translation(model, "the cat")) == model.translate(["the cat"])[0].text
    child = terminal("translate", run, "--beam-size", 1)
    child.expect_exact("> ")
    child.sendline("the cat")
    child.expect_exact("the cat\r\n")
    child.expect_exact(wanted + "\r\n> ")
    child.sendline("")
    child.expect_exact("> ")
    child.send(CTRL_D)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_without_a_home_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def nobody(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody)
    typed = iter(["the cat"])
    monkeypatch.setattr("builtins.input", lambda mark: next(typed, None) or (_ for _ in ()).throw(EOFError))
    converse(lambda line, number: [line.upper()])
    assert capsys.readouterr().out == "THE CAT\n\n"


@pytest.mark.parametrize("others", [("text",), ("--prompts", "-"), ("--samples", 2), ("--json",), ()])
def test_what_does_not_go_together_is_refused(others: tuple[object, ...], text_run: Path, call: Call) -> None:
    status, out, err = call("generate", text_run, "--interactive", *others)
    assert (status, out) == (2, b"")
    assert "--interactive" in err
    assert ("needs a terminal" in err) == (not others)
