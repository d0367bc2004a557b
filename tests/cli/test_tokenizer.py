"""`clearhead tokenizer` as people run it: a process with pipes, exit statuses and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Peer

from clearhead.tokenizer import BytePair, load, train

TEXT = "the unbelievable cat sat on the unbelievable mat\nthe other cat said: ¡naïve 日本!\n" * 8


def run(*arguments: object, given: bytes = b"", status: int = 0) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "clearhead", "tokenizer", *map(str, arguments)]
    done = subprocess.run(command, input=given, capture_output=True, timeout=120, check=False)
    assert done.returncode == status, done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    run("train", folder / "text.txt", "--vocab-size", 300, "-o", folder / "tokenizer.json")
    return folder


def test_train_writes_what_the_library_trains(folder: Path) -> None:
    assert (folder / "tokenizer.json").read_text() == train([TEXT], 300).to_json()
    arguments = ["train", "-", "--vocab-size", 290, "-o", folder / "other.json", "--special", "<|end|>"]
    done = run(*arguments, "--pattern", "o200k", given=TEXT.encode())
    assert (folder / "other.json").read_text() == train([TEXT], 290, special=["<|end|>"], pattern="o200k").to_json()
    assert done.stdout == b""
    assert b"other.json: 290 tokens, 33 merges" in done.stderr
    run("train", "-", "--vocab-size", 260, "-o", folder / "none.json", "--special", "", given=TEXT.encode())
    assert load(folder / "none.json").special == {}


def test_encode_and_decode_keep_every_line(folder: Path) -> None:
    lines = TEXT.encode() + b"\n<s> is text here\n\xff\x00 bytes\r\n \xe2\x80\xa8 x\nno line end"
    encoded = run("encode", folder / "tokenizer.json", given=lines)
    assert encoded.stdout.count(b"\n") == lines.count(b"\n") + 1
    tokenizer = load(folder)
    assert isinstance(tokenizer, BytePair)
    wanted = [" ".join(map(str, tokenizer.encode_bytes(line))) for line in lines.split(b"\n")]
    assert encoded.stdout.decode().splitlines() == wanted
    assert b"line 19: byte 0 is no UTF-8" in encoded.stderr
    decoded = run("decode", folder / "tokenizer.json", given=encoded.stdout)
    assert decoded.stdout == lines + b"\n"
    (folder / "lines").write_bytes(lines)
    assert run("encode", folder, folder / "lines").stdout == encoded.stdout


def test_json_lines_keep_line_ends_inside_a_text(folder: Path) -> None:
    tokenizer = load(folder)
    ids = tokenizer.encode('two\nlines "quoted"')
    plain = run("decode", folder, given=(" ".join(map(str, ids)) + "\n\n").encode())
    assert plain.stdout == b'two lines "quoted"\n\n'
    assert b"line 1: a line end inside the text is written as a space" in plain.stderr
    as_json = run("decode", folder, "--json", given=json.dumps(ids).encode())
    assert json.loads(as_json.stdout) == 'two\nlines "quoted"'
    assert json.loads(run("encode", folder, "--json", given=b"the cat").stdout) == tokenizer.encode("the cat")


def test_a_bad_line_gives_an_empty_one_and_status_2_in_the_end(folder: Path) -> None:
    done = run("decode", folder, given=b"5 6\n7 x\n9999\n8\n", status=2)
    tokenizer = load(folder)
    assert done.stdout.split(b"\n") == [tokenizer.decode_bytes([5, 6]), b"", b"", tokenizer.decode_bytes([8]), b""]
    assert b"line 2: b'7 x' is not integers" in done.stderr
    assert b"line 3: no token has the id 9999" in done.stderr
    assert b"2 of 4 lines could not be used" in done.stderr


def test_many_bad_lines_are_counted_and_not_all_listed(folder: Path) -> None:
    done = run("encode", folder, given=b"\xff\n" * 30)
    assert done.stdout.count(b"\n") == 30
    assert done.stderr.count(b"no UTF-8") == 10
    assert "… and 20 more".encode() in done.stderr


def test_lines_are_answered_one_by_one(folder: Path) -> None:
    command = [sys.executable, "-m", "clearhead", "tokenizer", "encode", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in ("the cat", "", "sat"):
            process.stdin.write(text.encode() + b"\n")
            process.stdin.flush()
            assert process.stdout.readline().decode() == " ".join(map(str, load(folder).encode(text))) + "\n"
        process.stdin.close()


def test_convert_goes_round(folder: Path) -> None:
    original = load(folder)
    run("convert", folder, folder / "x.tiktoken")
    names = [option for name, number in original.special.items() for option in ("--special", f"{name}={number}")]
    run("convert", folder / "x.tiktoken", f"{folder}/gpt2/", "--pattern", "gpt2", *names)
    run("convert", f"{folder}/gpt2", folder / "back.json", "--merges-as-text")
    assert load(folder / "back.json").to_json() == original.to_json()
    assert Peer.from_file(str(folder / "back.json")).encode("the cat").ids == original.encode("the cat")


def test_explain_shows_the_merges(folder: Path) -> None:
    shown = run("explain", "the cät", "-t", folder).stdout.decode()
    tokenizer = load(folder)
    assert isinstance(tokenizer, BytePair)
    lines = shown.splitlines()
    assert lines[0] == "the   (bytes: 3, merges: 2)"
    assert lines[1].split() == ["rank", "t", "h", "e"]
    for line in lines[2:4]:
        rank, *pieces = line.split()
        new = next(piece for piece in pieces if piece.startswith("["))
        assert b"".join(tokenizer.merges[int(rank)]).decode() == new[1:-1]
    assert lines[4].split() == ["ids", *map(str, tokenizer.encode("the"))]
    assert "␣" in shown
    assert "<C3> <A4>" in shown


def test_info_tells_about_the_vocabulary_and_a_text(folder: Path) -> None:
    facts = json.loads(run("info", folder, "--json", "--text", folder / "text.txt").stdout)
    tokenizer = load(folder)
    ids = tokenizer.encode_ordinary(TEXT)
    assert facts["size"] == 300
    assert facts["merges"] == 40
    assert facts["pattern"] == "gpt2"
    assert facts["tokens"] == len(ids)
    assert facts["bytes per token"] == round(len(TEXT.encode()) / len(ids), 3)
    assert facts["share of tokens never used"] == round(1 - len(set(ids)) / 296, 4)
    assert facts["share of tokens used fewer than 10 times"] == round(
        1 - len([number for number in set(ids) if ids.count(number) >= 10]) / 296, 4
    )
    assert len(facts["longest tokens"][0]) == max(map(len, tokenizer.vocabulary))  # type: ignore[attr-defined]
    (folder / "no.txt").write_bytes(b"as text it began\n\xfe\n")
    refused = run("info", folder, "--text", folder / "no.txt", status=2)
    assert (
        refused.stderr.decode() == f"clearhead: error: --text {folder}/no.txt is no text: the byte 0xfe is no UTF-8\n"
    )
    plain = run("info", folder).stdout.decode()
    assert "  ".join(f"{name} {number}" for name, number in tokenizer.special.items()) in plain


def test_mistakes_end_with_one_line_and_status_2_and_write_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    text = folder / "text.txt"
    mistakes = [
        (["train", text, "--vocab-size", 100, "-o", out], "a vocabulary of 100 is too small"),
        (["train", text, "--vocab-size", 99999, "-o", out], "is the most it can give"),
        (["train", tmp_path / "absent", "--vocab-size", 300, "-o", out], "cannot read"),
        (["train", text, "--vocab-size", 300, "-o", tmp_path / "no" / "x.json"], "there is no folder"),
        (["train", text, "--vocab-size", 300, "--pattern", "(", "-o", out], "not a regular expression"),
        (["encode", tmp_path / "absent.json"], "cannot read"),
        (["encode", folder, tmp_path / "absent"], "cannot read"),
        (["convert", folder / "tokenizer.json", out, "--special", "x"], "a name, = and an id are wanted"),
    ]
    for arguments, message in mistakes:
        error = run(*arguments, status=2).stderr.decode()
        assert error.startswith("clearhead: error: ")
        assert message in error
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
