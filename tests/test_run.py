"""A run folder: what is written is read back, and every kind of damage is named."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import tomli_w
import torch
from safetensors.torch import save

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.model import ModelConfig, build, configure
from clearhead.run import MODEL, OPTIMIZER, STATE, Run, read_tensors, read_toml, write_checkpoint
from clearhead.settings import to_dict


def small_config() -> ModelConfig:
    return configure("tiny", vocab_size=11, d_model=8, heads=2, d_ff=16, encoder_layers=1, decoder_layers=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = small_config()
    write_whole(tmp_path / "config.toml", tomli_w.dumps({"model": to_dict(config), "training": {"steps": 7}}))
    for step in (5, 10):
        torch.manual_seed(step)
        weights = build(config).state_dict()
        moments = {"step": torch.tensor(float(step))}
        folder = tmp_path / "checkpoints" / f"step_{step:08d}"
        write_checkpoint(folder, {MODEL: weights, OPTIMIZER: moments}, {"step": step})
    write_whole(tmp_path / "latest", "step_00000010\n")
    write_whole(tmp_path / "best", "step_00000005\n")
    return tmp_path


def test_the_weights_come_back_bit_for_bit_under_every_name(folder: Path) -> None:
    run = Run(folder)
    assert run.model_config == small_config()
    assert run.settings["training"] == {"steps": 7}
    assert [path.name for path in run.checkpoints()] == ["step_00000005", "step_00000010"]
    torch.manual_seed(5)
    five = build(small_config()).state_dict()
    for name in ("best", "step_5", "step_00000005"):
        weights = run.weights(name)
        assert weights.keys() == five.keys()
        assert all(torch.equal(weights[key], five[key]) for key in five)
    torch.manual_seed(10)
    ten = build(small_config())
    model = run.build("latest")
    assert not model.training
    source, target = torch.tensor([[3, 4, 5]]), torch.tensor([[1, 6]])
    assert torch.equal(model(source, target), ten.eval()(source, target))


def test_building_a_model_leaves_the_random_numbers_alone(folder: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Run(folder).build()
    assert torch.equal(torch.rand(3), expected)


def test_best_is_latest_where_nothing_was_validated(folder: Path) -> None:
    (folder / "best").unlink()
    assert Run(folder).checkpoint("best").name == "step_00000010"


def test_the_inventory_marks_what_the_names_stand_for(folder: Path) -> None:
    five, ten = Run(folder).inventory()
    assert (five.name, five.step, five.best, five.latest) == ("step_00000005", 5, True, False)
    assert (ten.name, ten.step, ten.best, ten.latest) == ("step_00000010", 10, False, True)
    assert (five.loss, five.problem) == (None, None)
    (folder / "best").unlink()
    assert [(one.best, one.latest) for one in Run(folder).inventory()] == [(False, False), (True, True)]
    (folder / "latest").write_text("step_00000099\n")  # a name that leads nowhere is no reason not to list the others
    assert [(one.best, one.latest) for one in Run(folder).inventory()] == [(False, False), (False, False)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("step_7", "no checkpoint step_00000007 .*it has: step_00000005, step_00000010"),
        ("average", "clearhead average"),
        ("newest", "'newest' is not one of best, latest, average or step_N"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_named(folder: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Run(folder).weights(name)


def test_no_run_and_no_checkpoint_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run at"):
        Run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"is not a run: it has no config\.toml"):
        Run(tmp_path)
    write_whole(tmp_path / "config.toml", "[model]\n")
    with pytest.raises(InputError, match="has no checkpoint yet"):
        Run(tmp_path).weights()
    write_whole(tmp_path / "config.toml", "[model\n")
    with pytest.raises(InputError, match=r"config\.toml is not valid TOML"):
        _ = Run(tmp_path).settings


def test_one_flipped_bit_is_found(folder: Path) -> None:
    path = folder / "checkpoints/step_00000010" / MODEL
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"step_00000010 is damaged: SHA-256 of model\.safetensors"):
        Run(folder).weights("latest")
    assert Run(folder).weights("best")


def test_missing_and_broken_files_of_a_checkpoint_are_named(folder: Path) -> None:
    newest = folder / "checkpoints/step_00000010"
    (newest / MODEL).unlink()
    with pytest.raises(InputError, match=r"incomplete: it has no model\.safetensors"):
        Run(folder).weights("latest")
    (newest / STATE).write_text("{")
    with pytest.raises(InputError, match=r"state\.json is not JSON"):
        Run(folder).weights("latest")
    (newest / STATE).write_text('{"format": "something-else"}')
    with pytest.raises(InputError, match="'something-else' is not 'clearhead-checkpoint-1'"):
        Run(folder).weights("latest")
    (newest / STATE).unlink()
    with pytest.raises(InputError, match=r"incomplete: it has no state\.json"):
        Run(folder).weights("latest")


@pytest.mark.parametrize("name", ["best", "latest"])
@pytest.mark.parametrize(
    "content",
    [b"", b"/etc", b"../../elsewhere", b"average", b"step_", b"\xff\xfe", b"step_1\nstep_2", b"step_" + b"9" * 5000],
)
def test_a_pointer_that_names_no_checkpoint_of_the_run_is_refused(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"{folder / name} holds b.*, not the name of a checkpoint in {folder}"):
        Run(folder).weights(name)
    assert [one.name for one in Run(folder).inventory()] == ["step_00000005", "step_00000010"]
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(InputError, match=f"cannot read {folder / name}: it is a folder"):
        Run(folder).weights(name)


def test_where_a_kill_came_before_the_pointers_they_follow_from_the_checkpoints(folder: Path) -> None:
    (folder / "best").unlink()
    (folder / "latest").unlink()
    assert Run(folder).checkpoint("latest").name == "step_00000010"
    newest = folder / "checkpoints/step_00000010" / STATE
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "progress": {"best_step": 5}}))
    assert Run(folder).checkpoint("best").name == "step_00000005"


def test_a_damaged_checkpoint_is_named_with_the_one_before_it_that_is_whole(folder: Path) -> None:
    (folder / "checkpoints/step_00000010" / MODEL).write_bytes(b"")
    with pytest.raises(InputError, match=r"step_00000010 is damaged.*; step_00000005 before it is whole: --check"):
        Run(folder).weights("latest")
    (folder / "checkpoints/step_00000005" / MODEL).write_bytes(b"")
    with pytest.raises(InputError, match=r"step_00000010 is damaged: .* says [0-9a-f]{64}$"):
        Run(folder).weights("latest")


def craft(folder: Path, content: bytes) -> None:
    """Weights of the latest checkpoint, with the right checksum."""
    newest = folder / "checkpoints/step_00000010"
    (newest / MODEL).write_bytes(content)
    state = json.loads((newest / STATE).read_text())
    state["sha256"][MODEL] = hashlib.sha256(content).hexdigest()
    (newest / STATE).write_text(json.dumps(state))


def test_crafted_weights_are_refused_by_name(folder: Path) -> None:
    weights = build(small_config()).state_dict()
    name = "embedding.weight"
    for tensor, message in (
        (weights[name].long(), f"tensor '{name}' is of torch.int64, not floats"),
        (torch.full_like(weights[name], float("nan")), f"tensor '{name}' has values that are not finite"),
        (weights[name].half(), "is of torch.float(16|32), others of another type"),
    ):
        craft(folder, save({**weights, name: tensor}))
        with pytest.raises(InputError, match=message):
            Run(folder).build("latest")
    header = json.dumps({"a": {"dtype": "Q7", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for content in (b"", b"x" * 100, len(header).to_bytes(8, "little") + header + bytes(8), b"\xff" * 8):
        craft(folder, content)
        with pytest.raises(InputError, match=r"model\.safetensors is not a safetensors file that can be read"):
            Run(folder).build("latest")


@pytest.mark.parametrize("huge", [{"d_model": 10**9, "heads": 1}, {"encoder_layers": 10**9}, {"vocab_size": 10**18}])
def test_a_hostile_size_is_refused_before_memory_is_taken(huge: dict[str, int], folder: Path) -> None:
    write_whole(folder / "config.toml", tomli_w.dumps({"model": {**to_dict(small_config()), **huge}}))
    with pytest.raises(InputError, match=r"config\.toml"):
        Run(folder).build()


def test_nesting_without_end_is_no_traceback(folder: Path) -> None:
    (folder / "checkpoints/step_00000010" / STATE).write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"state\.json is not JSON"):
        Run(folder).weights("latest")
    (folder / "config.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(InputError, match=r"config\.toml is not valid TOML"):
        _ = Run(folder).settings


@pytest.mark.parametrize("content", ["", "[training]\nsteps = 3\n", "model = 3\n"])
def test_settings_without_a_model_are_those_of_no_run(content: str, folder: Path) -> None:
    (folder / "config.toml").write_text(content)
    with pytest.raises(InputError, match=r"config\.toml: no \[model\] in it"):
        _ = Run(folder).settings


def test_weights_that_do_not_fit_the_configuration_are_named(folder: Path) -> None:
    other = to_dict(configure("tiny", vocab_size=12, d_model=8, heads=2, d_ff=16, encoder_layers=1, decoder_layers=1))
    write_whole(folder / "config.toml", tomli_w.dumps({"model": other}))
    with pytest.raises(InputError, match=r"tensor 'embedding\.weight' has shape \(11, 8\), .* wants \(12, 8\)"):
        Run(folder).build()


def test_a_failed_write_leaves_earlier_checkpoints_and_no_rest(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = folder / "checkpoints/step_00000010"
    before = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept.iterdir()}

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for step in (10, 15):
        with pytest.raises(InputError, match="No space left on device; earlier ones are untouched"):
            write_checkpoint(folder / f"checkpoints/step_{step:08d}", {MODEL: {"a": torch.zeros(2)}}, {"step": step})
    assert sorted(os.listdir(folder / "checkpoints")) == ["step_00000005", "step_00000010"]
    assert before == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kept.iterdir()}


def test_a_checkpoint_that_cannot_be_replaced_is_put_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = folder / "checkpoints/step_00000010"
    before, real, calls = (kept / MODEL).read_bytes(), os.rename, []

    def rename(*given: object) -> None:
        calls.append(given)
        if len(calls) == 2:  # the old one has been moved away, the new one should take its place
            raise OSError(5, "Input/output error")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("clearhead.disk.exchanged", lambda one, other: False)
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(InputError, match="Input/output error; earlier ones are untouched"):
        write_checkpoint(kept, {MODEL: {"a": torch.zeros(2)}}, {"step": 10})
    assert (kept / MODEL).read_bytes() == before
    assert sorted(os.listdir(folder / "checkpoints")) == ["step_00000005", "step_00000010"]


def test_a_checkpoint_of_the_same_name_is_replaced_whole(folder: Path) -> None:
    path = folder / "checkpoints/step_00000010"
    write_checkpoint(path, {MODEL: {"a": torch.ones(2)}}, {"step": 10, "note": "new"})
    state = json.loads((path / STATE).read_text())
    assert state["note"] == "new"
    assert torch.equal(read_tensors(path, MODEL, state)["a"], torch.ones(2))
    assert sorted(item.name for item in path.iterdir()) == [MODEL, STATE]


def test_settings_beyond_reason_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of 5,000 digits, which Python does not convert, and a file that is longer than any of settings."""
    path = tmp_path / "config.toml"
    path.write_text(f"steps = {'9' * 5000}\n")
    with pytest.raises(InputError, match=r"config.toml is not valid TOML"):
        read_toml(path)
    monkeypatch.setattr("clearhead.run.SETTINGS", 100)
    with pytest.raises(InputError, match=r"config.toml: it has 5,009 bytes or more, such a file may have 100"):
        read_toml(path)
