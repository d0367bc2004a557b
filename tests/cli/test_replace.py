"""A file that somebody named is not overwritten by a command that was not told to."""

from pathlib import Path

import pytest

from tests.cli.test_main import run
from tests.decoding.models import small_run

TRAIN = "tokenizer train lines.txt --vocab-size 262 --workers 1 -o a.json"
CASES = [
    TRAIN,
    "tokenizer convert a.json new.tiktoken",
    "tokenizer convert a.json folder/",
    "tokenizer convert a.json folder/merges.txt",
    "attention pairs cat -o heads.html",
    "ablate pairs cat -o worth.svg",
    "explore pairs --text cat -o page.html",
    "encode encoder lines.txt --mean -o vectors.npy",
]


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file, and which one it is and when it was written: a replaced one is another."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("words", CASES)
def test_nothing_is_replaced_without_being_told(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("the cat sat on the mat\n" * 9)
    if "convert" in words:
        assert run(monkeypatch, *TRAIN.split()) == 0
    elif "pairs" in words:
        small_run(tmp_path / "pairs", "encoder-decoder")
    elif "encode" in words:
        small_run(tmp_path / "encoder", "encoder")
    assert run(monkeypatch, *words.split()) == 0
    before = files(tmp_path)
    capsys.readouterr()
    assert run(monkeypatch, *words.split()) == 2
    said = capsys.readouterr().err
    assert "is already there: choose another name, or replace it with --force" in said
    assert said.count("\n") == 1
    assert files(tmp_path) == before
    assert run(monkeypatch, *words.split(), "--force") == 0
    assert files(tmp_path).keys() == before.keys()
    assert files(tmp_path) != before


def test_the_second_of_two_files_is_safe_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("the cat sat on the mat\n" * 9)
    (tmp_path / "merges.txt").write_text("mine")
    assert run(monkeypatch, *TRAIN.split()) == 0
    assert run(monkeypatch, "tokenizer", "convert", "a.json", "vocab.json") == 2
    assert (tmp_path / "merges.txt").read_text() == "mine"


@pytest.mark.long
def test_the_run_s_own_picture_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small_run(tmp_path / "pairs", "encoder-decoder")
    for _ in range(2):
        assert run(monkeypatch, "attention", str(folder), "cat") == 0
    assert [path.name for path in (folder / "plots").iterdir()] == ["attention.png"]
