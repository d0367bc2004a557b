"""Only what is needed may be required: what is damaged besides is reported in a line, and left out."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from clearhead.errors import InputError
from clearhead.run import MODEL, OPTIMIZER, STATE, Run
from clearhead.training.checkpoint import average, newest
from clearhead.training.report import read_metrics
from clearhead.training.session import Outcome, train
from tests.training import small

NEWEST = "step_00000012"


def finish(folder: Path, steps: int = 14, **changes: object) -> Outcome:
    settings = {"checkpoint_every": 2, "keep_last": 9, **changes}
    return train(small.recipe(steps=steps, **settings), folder, quiet=True)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to."""
    folder = tmp_path_factory.mktemp("straight")
    finish(folder, 12)
    shutil.copytree(folder, folder / "at 12")
    finish(folder)
    return folder


@pytest.fixture
def run(straight: Path, tmp_path: Path) -> Path:
    """A run of its own, of which 12 of 14 steps are done."""
    return Path(shutil.copytree(straight / "at 12", tmp_path / "run"))


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x80
    path.write_bytes(content)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "step_00000002": Path.unlink,
    "step_00000004": lambda path: path.write_bytes(b""),
    "step_00000006": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "step_00000008": flipped,
    "step_00000010": as_folder,
}


def same_end(run: Path, straight: Path) -> bool:
    files = [Path("checkpoints/step_00000014") / file for file in (MODEL, OPTIMIZER)]
    return all((run / file).read_bytes() == (straight / file).read_bytes() for file in files)


def test_damaged_older_checkpoints_stop_nothing(run: Path, straight: Path) -> None:
    for name, damage in DAMAGE.items():
        damage(run / "checkpoints" / name / STATE)
    finish(run)
    assert same_end(run, straight)
    log = (run / "train.log").read_text().splitlines()
    for name in DAMAGE:
        assert len([line for line in log if name in line and line.endswith("; left out")]) == 1
        assert (run / "checkpoints" / name).exists(), "what cannot be read is not removed"


@pytest.mark.parametrize("of", ["last", "best"])
@pytest.mark.parametrize("file", [STATE, MODEL])
def test_an_average_leaves_out_what_is_damaged(
    of: str, file: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = [folder.name for folder in average(Run(run), 2, of)]
    flipped(run / "checkpoints" / whole[1] / file)
    capsys.readouterr()
    instead = [folder.name for folder in average(Run(run), 2, of)]
    assert whole[1] not in instead
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith("clearhead: warning: ")
    assert whole[1] in warning


def test_the_best_checkpoint_damaged_costs_the_test_and_nothing_else(tmp_path: Path) -> None:
    level = {"schedule": "constant", "peak": 1e-30, "warmup": 0, "validate_every": 1}  # the first validation is best
    finish(tmp_path, 2, **level)
    best = Run(tmp_path).checkpoint("best")
    assert best.name == "step_00000001"
    flipped(best / MODEL)
    outcome = finish(tmp_path, 3, **level)
    assert outcome.progress.step == 3
    assert outcome.tests == {}
    assert f"test: not tested, because checkpoint {best} is damaged" in (tmp_path / "train.log").read_text()


def test_bad_lines_of_metrics_are_reported_and_left_out(run: Path, straight: Path) -> None:
    bad = [b'{"step": 6, "lo', b"\xff\xfe", b"[]", b'{"step": "6"}', b"", b"[" * 100_000]
    path = run / "metrics.jsonl"
    first, *rest = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, *bad, *rest, b""]))
    told: list[str] = []
    assert len(read_metrics(path, told.append)) == 1 + len(rest)
    assert told == [f"{path}: left out 6 lines that are no metrics (first: line 2)"]
    finish(run)
    assert told[0] in (run / "train.log").read_text()
    steps = [[row["step"] for row in read_metrics(folder / "metrics.jsonl", told.append)] for folder in (run, straight)]
    assert steps[0] == steps[1]
    assert len(told) == 1, "nothing is left to be reported"


def test_half_a_last_line_is_what_a_kill_leaves_and_nothing_to_report(run: Path) -> None:
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 13, "epo')
    assert read_metrics(run / "metrics.jsonl", pytest.fail)[-1]["step"] == 12


def rewrite(folder: Path, file: str, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors of a checkpoint, and its checksums with them, as somebody with intent would."""
    tensors = load((folder / file).read_bytes())
    change(tensors)
    content = save(tensors)
    (folder / file).write_bytes(content)
    state = json.loads((folder / STATE).read_text())
    state["sha256"][file] = hashlib.sha256(content).hexdigest()
    (folder / STATE).write_text(json.dumps(state))


NAME = "exp_avg.embedding.weight"
MOMENTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "short": (lambda t: t.update({NAME: t[NAME][:1].clone()}), rf"'{NAME}' is torch.float32 \(1, 16\), wanted is"),
    "empty tensor": (lambda t: t.update({NAME: torch.zeros(0)}), rf"'{NAME}' is torch.float32 \(0,\), wanted is"),
    "other type": (lambda t: t.update({NAME: t[NAME].half()}), rf"'{NAME}' is torch.float16 \("),
    "no number": (
        lambda t: t.update({"step.embedding.weight": torch.zeros(2)}),
        r"'step.embedding.weight' is .*\(2,\)",
    ),
    "not finite": (lambda t: t[NAME].fill_(float("inf")), f"'{NAME}' has values that are not finite"),
    "one missing": (lambda t: t.pop(NAME), f"is incomplete: it has no tensor '{NAME}'"),
    "all missing": (lambda t: t.clear(), "is incomplete: it has no tensor 'exp_avg.dec"),
    "one too many": (lambda t: t.update({"exp_avg.x": torch.zeros(2)}), "'exp_avg.x' is nothing that this optimizer"),
    "no parameter": (lambda t: t.update({"x": torch.zeros(2)}), "'x' is nothing that this optimizer remembers"),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_moments_that_do_not_fit_are_refused_by_name_before_torch_gets_them(case: str, run: Path) -> None:
    change, message = MOMENTS[case]
    rewrite(run / "checkpoints" / NEWEST, OPTIMIZER, change)
    with pytest.raises(InputError, match=f"{NEWEST}/{OPTIMIZER}.*{message}"):
        finish(run)


def test_weights_that_do_not_fit_are_refused_by_name(run: Path) -> None:
    rewrite(run / "checkpoints" / NEWEST, MODEL, lambda t: t.update({"embedding.weight": torch.zeros(3, 3)}))
    with pytest.raises(InputError, match=rf"{NEWEST}/{MODEL} does not fit .*'embedding.weight' has shape \(3, 3\)"):
        finish(run)


def test_moments_that_no_update_has_made_are_not_asked_for(run: Path) -> None:
    """float16 may skip all updates up to a checkpoint: then there is nothing to remember, and that is remembered."""
    folder = run / "checkpoints" / NEWEST
    state = json.loads((folder / STATE).read_text())
    assert state["unmoved"] == []
    state["unmoved"] = sorted(load((folder / MODEL).read_bytes()))
    (folder / STATE).write_text(json.dumps(state))
    rewrite(folder, OPTIMIZER, lambda tensors: tensors.clear())
    assert finish(run, 13).progress.step == 13


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("threads", 100_000, "threads must be from 1 to 1024, not 100000"),
        ("threads", None, "threads must be from 1 to 1024, not None"),
        ("progress", [], r"progress must be a table, not \[\]"),
        ("progress", {"steps": 12}, "unknown key 'progress.steps'; did you mean 'step'"),
        ("progress", {"step": 11}, "progress.step = 11 is not step = 12"),
        ("progress", {"step": 12, "best_step": 10**30}, "progress.best_step must be from 0 to 12, not 1000"),
        ("progress", {"step": 12, "batch": -1}, "progress.batch must be from 0 to inf, not -1"),
        ("step", 11, "step 11 is not that of step_00000012"),
        ("step", "12", "step must be a whole number, not '12'"),
        ("sha256", None, "sha256 must be a table of files, not None"),
        ("validation", {"loss": "low"}, "validation must be a table of scores"),
        ("unmoved", "all", "unmoved must be a list of parameters, not 'all'"),
    ],
)
def test_a_state_that_says_nonsense_is_named_and_the_checkpoint_before_it_used(
    key: str, value: object, message: str, run: Path
) -> None:
    path = run / "checkpoints" / NEWEST / STATE
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    told: list[str] = []
    saved = newest(Run(run), told.append)
    assert saved is not None
    assert saved.folder.name == "step_00000010"
    (line,) = told
    assert line.startswith(f"{path}: ")
    assert line.endswith("; trying the one before it")
    assert re.search(message, line)


def test_after_a_damaged_newest_checkpoint_best_and_latest_are_what_they_were(run: Path, straight: Path) -> None:
    flipped(run / "checkpoints" / NEWEST / MODEL)
    finish(run)
    assert same_end(run, straight)
    for name in ("best", "latest"):
        assert (run / name).read_text() == (straight / name).read_text()
