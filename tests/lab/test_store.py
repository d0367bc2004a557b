"""Results survive interruption, and are measured again when the sizes change."""

import itertools
import json
from pathlib import Path

import pytest

from clearhead.errors import InputError
from clearhead.lab import runner, store
from clearhead.lab.catalogue import everything, find, names
from clearhead.lab.experiment import FIRST_SEED, MACHINE, PILOT_SEED, Cell, Numbers, Sizes

SIZES = {"seeds": 2, "lengths": (4, 8)}


def test_cell_round_trip(tmp_path: Path) -> None:
    cell = Cell("an arm, with / signs", 3, {"loss": 0.1 + 0.2, "course": [1.0, 1 / 3]})
    path = store.cell_path(tmp_path, "x", True, cell.arm, cell.seed)
    store.save_cell(path, SIZES, cell, 1.0)
    assert store.load_cell(path, SIZES) == cell  # to the last digit
    assert store.load_cell(path, SIZES | {"seeds": 9}) == cell  # more seeds do not make it another cell
    assert store.load_cell(path, SIZES | {"lengths": (4, 16)}) is None


def test_what_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="loss = nan is not finite"):
        store.save_cell(tmp_path / "a.json", SIZES, Cell("a", 1, {"loss": float("nan")}), 1.0)
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="not a result of the lab"):
        store.load_cell(path, SIZES)


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is missing is measured, and what is there is left as it was."""
    experiment = find("numerics")
    turns = itertools.count(1)

    def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
        turn = next(turns)
        if turn == 4:
            raise KeyboardInterrupt
        return {"loss": float(turn)}

    object.__setattr__(experiment, "measure", measure)
    monkeypatch.setattr(runner, "find", lambda name: experiment)
    try:
        with pytest.raises(KeyboardInterrupt):
            runner.run(experiment, tmp_path, quick=True, seeds=1, jobs=1)
        kept = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
        assert len(kept) == 3
        results = runner.run(experiment, tmp_path, quick=True, seeds=1, jobs=1)
    finally:
        from clearhead.lab.experiments import numerics

        object.__setattr__(experiment, "measure", numerics.measure)
    assert {path: path.read_bytes() for path in kept} == kept
    # the interrupted one was measured again, the others once
    assert results is not None
    assert sorted(cell.numbers["loss"] for cell in results.cells) == [1, 2, 3, *range(5, len(experiment.arms) + 2)]


def test_pilots_are_not_reported(tmp_path: Path) -> None:
    """What sizes and rules were chosen by is no evidence for them: pilots have other seeds, and reports skip them."""
    experiment = find("numerics")
    sizes = experiment.sizes(quick=True)

    def keep(seed: int) -> None:
        for arm in experiment.arms:
            path = store.cell_path(tmp_path, experiment.name, True, arm, seed)
            store.save_cell(path, sizes, Cell(arm, seed, {"loss": float(seed)}), 1.0)

    for seed in range(PILOT_SEED, PILOT_SEED + 3):
        keep(seed)
    assert store.load(experiment, tmp_path, quick=True) is None
    keep(FIRST_SEED)
    reported = store.load(experiment, tmp_path, quick=True)
    assert reported is not None
    assert {cell.seed for cell in reported.cells} == {FIRST_SEED}
    pilot = runner.run(experiment, tmp_path, quick=True, seeds=3, jobs=1, pilot=True)  # found, not measured again
    assert pilot is not None
    assert {cell.seed for cell in pilot.cells} == {1, 2, 3}
    counted = runner.run(experiment, tmp_path, True, 1, 1)
    assert counted is not None
    assert {cell.seed for cell in counted.cells} == {FIRST_SEED}


def test_workers_write_the_same_numbers(tmp_path: Path) -> None:
    """A worker process and this one agree to the last digit, times aside, on a model that is trained."""
    experiment = find("recurrence")
    tiny = dict(experiment.quick) | {"lengths": (16,), "rounds": 1, "distances": (4,), "steps": 20}
    here = runner.measure_cell(experiment.name, "lstm", 1, tiny, tmp_path / "here.json")
    found: list[Cell] = []
    runner.measure_in_workers(experiment, tiny, [("lstm", 1, tmp_path / "there.json")], 2, found.append)

    def repeatable(numbers: Numbers) -> Numbers:
        return {name: value for name, value in numbers.items() if not name.startswith(MACHINE)}

    assert [repeatable(cell.numbers) for cell in found] == [repeatable(here.numbers)]
    assert json.loads((tmp_path / "there.json").read_text())["numbers"] == found[0].numbers


def test_every_experiment_says_what_it_is() -> None:
    found = everything()
    assert len(found) >= 17
    assert sorted(experiment.name for experiment in found) == names()
    assert len({experiment.number for experiment in found}) == len(found)
    for experiment in found:
        assert len(experiment.arms) >= 2
        assert experiment.quick.keys() == experiment.full.keys()  # the same knobs, turned further
        assert experiment.full["seeds"] >= 3
        machine_numbers = [name for name in experiment.columns if name.startswith(MACHINE)]
        assert experiment.timed or not machine_numbers
        paths = {store.cell_path(Path(), experiment.name, True, arm, 1) for arm in experiment.arms}
        assert len(paths) == len(experiment.arms)  # no two arms share a file
        json.dumps(experiment.quick), json.dumps(experiment.full)


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'scaling'"):
        find("scalling")
