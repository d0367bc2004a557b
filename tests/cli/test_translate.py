"""The filters, run as people run them: what comes out for what goes in, on stdout, on stderr and as exit status."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clearhead.tokenizer import SPECIAL
from tests.cli.conftest import Call
from tests.decoding.models import small_run

COMMAND = [sys.executable, "-m", "clearhead"]


def fuzz(count: int) -> list[bytes]:
    """Lines nobody should send."""
    chance = random.Random(1)
    scripts = [range(0x20, 0x7F), range(0xC0, 0x250), range(0x370, 0x400), range(0x400, 0x500), range(0x5D0, 0x5EB)]
    scripts += [range(0x600, 0x6FF), range(0x900, 0x97F), range(0xE00, 0xE5B), range(0x4E00, 0x9FFF)]
    scripts += [range(0xAC00, 0xD7A3), range(0x1F300, 0x1F6FF), range(0x200B, 0x2010), range(0x1, 0x1F)]
    lines = [b"", b" \t ", b"\xff\xfe\xfd", b"\0", b"a\0b", b"\r", b"x" * 1_000_000, "日本語".encode() * 5000]
    lines += [token.encode() for token in (*SPECIAL, "<|endoftext|>", "<mask>")]
    lines += [b"\xe2\x80\xa8 line separator", "e\u0301\u200d\u202e\ufeff\u2028".encode(), b"\xed\xa0\x80 surrogate"]
    while len(lines) < count:
        kind, length = chance.random(), chance.randrange(0, 12)
        if kind < 0.2:
            lines.append(bytes(chance.randrange(256) for _ in range(length)).replace(b"\n", b"?"))
        else:
            letters = "".join(chr(chance.choice(chance.choice(scripts))) for _ in range(length)).replace("\n", "?")
            lines.append(letters.encode() if kind < 0.9 else (SPECIAL[chance.randrange(4)] + letters).encode())
    chance.shuffle(lines)
    return lines


def test_ten_thousand_terrible_lines(run: Path, tmp_path: Path, call: Call) -> None:
    lines = fuzz(10_000)
    (tmp_path / "terrible").write_bytes(b"\n".join(lines))
    status, out, err = call("translate", run, tmp_path / "terrible", "--beam-size", "1", "--set", "max_extra=0")
    assert status == 0
    written = out.split(b"\n")
    assert written.pop() == b""
    assert len(written) == 10_000
    for line, answer in zip(lines, written, strict=True):
        answer.decode()
        if not line.decode(errors="replace").strip():
            assert answer == b""
    assert "lines not UTF-8" in err
    assert "with NUL characters" in err
    assert "longer than 48 tokens" in err
    assert "Traceback" not in err
    # in order: a few of them alone say the same
    for number in (0, 4321, 9999):
        (tmp_path / "one").write_bytes(lines[number] + b"\n")
        alone = call("translate", run, tmp_path / "one", "--beam-size", "1", "--set", "max_extra=0")
        assert alone[1] == written[number] + b"\n"


def test_generate_survives_them_too(text_run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "terrible").write_bytes(b"\n".join(fuzz(300)) + b"\n")
    status, out, _ = call("generate", text_run, "--prompts", tmp_path / "terrible")
    assert status == 0
    assert out.count(b"\n") == 300


def test_json_lines(run: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "in").write_text("the cat sat\n\nthe dog\n")
    status, out, _ = call("translate", run, tmp_path / "in", "--json", "--n-best", "2")
    assert status == 0
    first, empty, third = map(json.loads, out.splitlines())
    assert empty == {"line": 2, "source": "", "text": ""}
    assert third["line"] == 3
    assert len(first["n_best"]) == 2
    assert first["score"] == first["n_best"][0]["score"] >= first["n_best"][1]["score"]
    assert len(first["log_probs"]) == len(first["tokens"]) + first["finished"]
    assert first["log_prob"] == pytest.approx(sum(first["log_probs"]))
    assert first["alignment"]["layer"] in (1, 2)
    assert first["alignment"]["heads"] == "mean"
    assert [link[0] for link in first["alignment"]["links"]] == list(range(len(first["tokens"])))
    assert all(link[1] < len(first["source_tokens"]) for link in first["alignment"]["links"])
    plain = call("translate", run, tmp_path / "in", "--n-best", "2")[1].decode().split("\n")
    assert len(plain[0].split("\t")) == 2
    assert plain[1] == ""


def test_answers_come_line_by_line_and_ctrl_c_is_quiet(run: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "translate", str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for line in (b"the cat\n", b"\n", b"the dog\n"):  # each answer is there before the next question
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_a_closed_pipe_is_quiet(run: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "translate", str(run), "--beam-size", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"the cat\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"the cat\n" * 5)
        process.stdin.close()
        process.wait(30)
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("translate", "NOTHING"), "no run at"),
        (("translate", "TEXT"), "cannot translate: its model is of the kind 'decoder'"),
        (("generate", "PAIRS", "x"), "cannot generate"),
        (("encode", "PAIRS"), "cannot encode"),
        (("translate", "PAIRS", "nothing.txt"), "cannot read nothing.txt: No such file"),
        (("translate", "PAIRS", "--checkpoint", "step_9"), "has no checkpoint step_00000009"),
        (("translate", "PAIRS", "--set", "beam=3"), "unknown decoding setting 'beam'"),
        (("translate", "PAIRS", "--n-best", "3", "--beam-size", "2"), "n_best must be between 1 and beam_size = 2"),
        (("generate", "TEXT", "x", "--top-p", "2"), "--top-p 2: "),
        (("score", "PAIRS"), "wants --source and --target"),
        (("evaluate", "PAIRS", "--source", "x"), "--source and --reference together"),
    ],
)
def test_mistakes_are_named(
    run: Path,
    text_run: Path,
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    call: Call,
) -> None:
    places = {"PAIRS": run, "TEXT": text_run, "NOTHING": tmp_path / "nothing"}
    (tmp_path / "in").write_text("the cat\n")
    with (tmp_path / "in").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        status, out, err = call(*(places.get(word, word) for word in words))
    assert status == 2
    assert out == b""
    assert said in err
    assert "Traceback" not in err


def test_a_damaged_checkpoint_is_named(tmp_path: Path, call: Call) -> None:
    run = small_run(tmp_path / "run", "encoder-decoder")
    weights = run / "checkpoints" / "step_00000001" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    status, _, err = call("translate", run)
    assert status == 2
    assert "damaged" in err
    assert "model.safetensors" in err
