"""What once was taken for something else, without a word: each is refused by name, or done as asked."""

from pathlib import Path

import pytest

from tests.cli.conftest import Call
from tests.decoding.models import small_run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translate", "PAIRS", "FILE", "--beam-size", "0"], "--beam-size 0: "),
        (["translate", "PAIRS", "FILE", "--set", "beam_size=0"], "decoding.beam_size must be positive, not 0"),
        (["translate", "PAIRS", "FILE", "--length-penalty", "nan"], "--length-penalty nan: "),
        (["translate", "PAIRS", "FILE", "--threads", "100000"], "--threads 100000: "),
        (["translate", "PAIRS", "FILE", "--threads", "1", "--threads", "2"], "--threads is given twice"),
        (["average", "PAIRS", "--best", "0"], "--best 0: "),
        (["average", "PAIRS", "--last", "0"], "--last 0: "),
        (["average", "PAIRS", "--last", "3"], "--last 3: "),
        (["average", "PAIRS", "--best", "1"], "--best 1: "),  # none of its checkpoints has a validation loss
        (["generate", "TEXT", "the cat", "--prompts", "FILE"], "PROMPT 'the cat' and --prompts "),
        (["generate", "TEXT", "the cat", "--temperature", "inf"], "--temperature inf: a finite number is wanted"),
        (["generate", "TEXT", "the cat", "--top-p", "nan"], "--top-p nan: "),
        (["generate", "TEXT", "the cat", "--samples", "1" * 30], "--samples 1"),
        (["train", "copy", "--dump-config", "--set", "training.peak=nan"], "training.peak must be a finite number"),
        (["train", "copy", "--dump-config", "--set", "training.peak=inf"], "training.peak must be a finite number"),
        (["train", "copy", "--run", ""], "--run is empty"),
        (["train", "copy", "--run", "FILE"], "a folder is wanted"),
        (["train", "copy", "--run", "FILE/below"], "a folder is wanted"),
        (["demo", "--run", "FILE"], "a folder is wanted"),
        (["encode", "PAIRS", "FILE", "--mean", "--predict"], "--predict and --mean"),
        (["shapes", "tiny", "--head", "2"], "--head is for --attention"),
        (["tokenizer", "convert", "PAIRS/tokenizer.json", "x.doc"], "x.doc: the name must end in "),
        (["tokenizer", "convert", "PAIRS/tokenizer.json", "x.tiktoken", "--merges-as-text"], "--merges-as-text is for"),
    ],
)
def test_refused_by_name(
    words: list[str],
    said: str,
    run: Path,
    text_run: Path,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_text("the cat\n")
    places = {"PAIRS": run, "TEXT": text_run, "FILE": tmp_path / "lines"}
    filled = [word.replace(name, str(path)) for word in words for name, path in places.items() if name in word]
    known = iter(filled)
    status, out, err = call(*(next(known) if any(name in word for name in places) else word for word in words))
    assert (status, out) == (2, b"")
    assert err.startswith("clearhead: error: ")
    assert said in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["lines"]


def test_a_refused_training_leaves_no_folder_behind(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, err = call("train", "copy", "--run", "new/run", "--set", "model.heads=3", "--set", "data.examples=50")
    assert status == 2
    assert "heads must divide d_model" in err
    assert not any(tmp_path.iterdir())


def test_a_training_that_is_refused_leaves_the_run_as_it_was(run: Path, call: Call) -> None:
    before = {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))}
    status, _, err = call("train", "copy", "--run", run, "--set", "data.examples=50")
    assert status == 2
    assert f"{run} was begun with" in err
    assert {path: path.stat().st_mtime_ns for path in sorted(run.rglob("*"))} == before


def test_as_many_checkpoints_as_were_kept_are_averaged(call: Call, tmp_path: Path) -> None:
    kept = small_run(tmp_path / "run", "encoder-decoder", training={"validate_every": 1})
    status, _, err = call("average", kept, "--last", "1")
    assert (status, err) == (0, "averaged 1: step_00000001\n")
    status, _, err = call("average", kept, "--last", "2")
    assert status == 2
    assert "has kept 1 checkpoints to average" in err
    assert str(kept / "config.toml") in err


def test_an_escape_among_the_words_does_not_reach_the_terminal(call: Call) -> None:
    status, _, err = call("doctor", "torch.nn:Transformer", "--format", "\x1b[31m")
    assert status == 2
    assert "\x1b" not in err
    assert "\\u001b[31m" in err
