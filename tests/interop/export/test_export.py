"""What every export keeps to: whole or not at all, nothing overwritten unasked, each file named."""

import sys
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.errors import InputError
from clearhead.interop.export import FORMATS, export
from clearhead.interop.export import to_numpy as numpy_format
from clearhead.interop.export.follow import refuse_beyond
from clearhead.model import configure
from tests.cli.conftest import Call, call  # noqa: F401 (a fixture)
from tests.interop.export.runs import run_of

NUMPY = ["model.py", "tokens.json", "weights.npz"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("runs") / "pairs", "encoder-decoder")


def test_each_file_is_named(run: Path, call: Call, tmp_path: Path) -> None:  # noqa: F811
    status, out, err = call("export", run, tmp_path / "deep" / "out", "--to", "numpy")
    assert status == 0
    assert out.decode().splitlines() == [str(tmp_path / "deep" / "out" / name) for name in NUMPY]
    assert f"python {tmp_path / 'deep' / 'out'}/model.py" in err
    assert sorted(path.name for path in (tmp_path / "deep" / "out").iterdir()) == NUMPY


def test_the_same_from_python(run: Path, tmp_path: Path) -> None:
    made = clearhead.export(run, tmp_path / "out", "numpy", checkpoint="latest")
    assert (made.folder, made.files) == (tmp_path / "out", NUMPY)


def test_nothing_is_overwritten_unasked(run: Path, call: Call, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "out"
    folder.mkdir()
    assert call("export", run, folder, "--to", "numpy")[0] == 0  # an empty one is as good as none
    (folder / "model.py").write_text("mine")
    status, _, err = call("export", run, folder, "--to", "numpy")
    assert status == 2
    assert f"{folder} is not empty" in err
    assert (folder / "model.py").read_text() == "mine"
    assert call("export", run, folder, "--to", "numpy", "--force")[0] == 0
    assert (folder / "model.py").read_text() != "mine"
    (folder / "notes.txt").write_text("mine")
    status, _, err = call("export", run, folder, "--to", "numpy", "--force")
    assert status == 2
    assert f"{folder} also holds notes.txt" in err
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_run_is_never_written_over(run: Path, tmp_path: Path) -> None:
    for folder in (run, run.parent):
        with pytest.raises(InputError, match="holds the run itself"):
            export(run, folder, "numpy", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file, a folder is wanted"):
        export(run, tmp_path / "file" / "out", "numpy")


def test_what_fails_leaves_no_trace(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    export(run, tmp_path / "old", "numpy")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    monkeypatch.setattr(numpy_format, "specialise", full)
    for folder in (tmp_path / "deep" / "new", tmp_path / "old"):
        with pytest.raises(InputError, match=f"cannot write {folder}: No space left"):
            export(run, folder, "numpy", force=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "gguf"], "gguf"),
        (["--to", "numpy", "--quantization", "int8"], "--quantization int8 is for --to ctranslate2"),
        (["--to", "ctranslate2", "--quantization", "int3"], "int3"),
        (["--to", "numpy", "--checkpoint", "step_7"], "no checkpoint step_00000007"),
        ([], "--to"),
    ],
)
def test_mistakes(run: Path, words: list[str], said: str, call: Call, tmp_path: Path) -> None:  # noqa: F811
    status, out, err = call("export", run, tmp_path / "out", *words)
    assert (status, out) == (2, b"")
    assert said in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("to", "library"), [("ctranslate2", "ctranslate2"), ("onnx", "onnxscript")])
def test_what_is_not_installed_is_named(
    to: Any, library: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=r"pip install 'clearhead\[export\]'"):
        export(run, tmp_path / "out", to)
    assert not any(tmp_path.iterdir())


def test_a_setting_that_nobody_has_heard_of_is_refused() -> None:
    """Whatever is added to our configurations is refused until a format says that it follows it."""
    config = configure("tiny", window=3, norm={"kind": "rms"})
    with pytest.raises(InputError, match=r"Some program cannot follow model.window = 3: it has no such setting"):
        refuse_beyond(config, "Some program", {"norm.kind": ("rms",), "norm.placement": ("pre",), "norm.final": None})
    with pytest.raises(InputError, match=r"model.norm.kind = 'rms'; it can 'layer'"):
        refuse_beyond(config, "Some program", {"window": None, "norm.kind": ("layer",)})


def test_formats_are_those_of_the_help(call: Call) -> None:  # noqa: F811
    status, out, _ = call("export", "--help")
    assert status == 0
    assert all(name in out.decode() for name in FORMATS)
