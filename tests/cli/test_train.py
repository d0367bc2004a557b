"""`clearhead train`, `plot`, `average` as a user meets them: one line for a mistake, and statuses as documented."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests.training import small


def clearhead(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clearhead", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=300,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("cli")
    recipe = small.write_recipe(folder / "mine.toml")
    done = clearhead("train", recipe, "--run", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_training_talks_on_standard_error_and_fills_the_folder(
    trained: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, done = trained
    assert done.stdout == ""
    assert "step     10" in done.stderr
    assert "step     24" in done.stderr
    assert "→" in done.stderr  # a sample of what the model writes
    assert "test: loss" in done.stderr
    for name in ("config.toml", "tokenizer.json", "metrics.jsonl", "train.log", "latest", "best", "checkpoints"):
        assert (folder / "run" / name).exists(), name


def test_plot_draws_png_and_svg(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = trained
    done = clearhead("plot", folder / "run")
    assert done.returncode == 0, done.stderr
    png, svg = (Path(line) for line in done.stdout.splitlines())
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    assert all(label in text for label in ("learning rate", "gradient norm", "loss per token"))


def test_average_and_its_mistakes(trained: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = trained
    done = clearhead("average", folder / "run", "--last", 2)
    assert done.returncode == 0, done.stderr
    assert "averaged 2: step_00000020, step_00000024" in done.stderr
    wrong = clearhead("average", folder / "run", "--last", 2, "--best", 2)
    assert (wrong.returncode, wrong.stderr) == (2, "clearhead: error: --last 2 and --best 2: give one of them\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["copi"], "no recipe 'copi'; did you mean 'copy'?"),
        (["copy", "--set", "training.stepz=1"], "unknown key 'training.stepz'; did you mean 'steps'?"),
        (["copy", "--set", "model.d_modle=1", "--run", "{tmp}"], "unknown key 'd_modle'; did you mean 'd_model'?"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = clearhead("train", *(argument.replace("{tmp}", str(tmp_path / "run")) for argument in arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("clearhead: error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_dump_config_is_a_recipe(tmp_path: Path) -> None:
    first = clearhead("train", "copy", "--set", "training.steps=7", "--dump-config")
    assert first.returncode == 0
    settings = tomllib.loads(first.stdout)
    assert settings["training"]["steps"] == 7
    assert settings["training"]["beta2"] == 0.98  # defaults are filled in
    (tmp_path / "again.toml").write_text(first.stdout)
    assert clearhead("train", tmp_path / "again.toml", "--dump-config").stdout == first.stdout


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signals_save_and_exit_with_their_status(number: int, status: int, tmp_path: Path) -> None:
    recipe = small.write_recipe(tmp_path / "long.toml", steps=100_000, checkpoint_every=50_000, validate_every=50_000)
    job = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "train", str(recipe), "--run", str(tmp_path / "run")],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "metrics.jsonl").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    job.send_signal(number)
    _, shown = job.communicate(timeout=60)
    assert job.returncode == status, shown
    assert "Traceback" not in shown
    latest = (tmp_path / "run" / "latest").read_text().strip()
    assert (tmp_path / "run" / "checkpoints" / latest / "model.safetensors").is_file()


@pytest.mark.long
def test_compiling_without_a_compiler_says_so_and_trains_plainly(tmp_path: Path) -> None:
    recipe = small.write_recipe(tmp_path / "small.toml", steps=2, compile=True, samples=0)
    empty = tmp_path / "bin"
    empty.mkdir()
    for tool in ("sh", "git"):
        if found := shutil.which(tool):
            (empty / tool).symlink_to(found)
    done = clearhead(
        "train", recipe, "--run", tmp_path / "run",
        PATH=str(empty), CXX="/nowhere/c++", TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "torch.compile does not work here" in done.stderr
    assert "training without it" in done.stderr
    assert "Traceback" not in done.stderr
