"""What is published: every verdict follows from its stored numbers, and the report can be written from them alone."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import InputError
from clearhead.lab import store
from clearhead.lab.catalogue import everything, find
from clearhead.lab.experiment import EARLIER_SEED, FIRST_SEED, Cell, Results, Verdict
from clearhead.lab.report import disagreements, write_report

DOCS = Path(__file__).resolve().parents[2] / "docs" / "lab"
PUBLISHED = sorted(path for path in DOCS.glob("*.json") if path.name != store.WORDS)


def published(path: Path) -> tuple[dict[str, Any], Results]:
    """A published document, and the results in it."""
    content = store.read_json(path)
    cells = [Cell(row["arm"], row["seed"], row["numbers"]) for row in content["cells"]]
    return content, find(content["experiment"]).results(content["sizes"], cells)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_verdicts_follow_from_their_numbers(path: Path) -> None:
    content, results = published(path)
    experiment = find(content["experiment"])
    assert store.verdicts(experiment, results) == content["verdicts"]
    quick = "--quick" in content["command"]
    # else the report is out of date; numbers from before the rules may have other sizes, and the page says so
    assert results.earlier or store.settled(results.sizes) == store.settled(experiment.sizes(quick))
    cells = [(cell.arm, cell.seed) for cell in results.cells]
    first = EARLIER_SEED if results.earlier else FIRST_SEED
    seeds = range(first, first + results.seeds)  # no pilots
    assert sorted(cells) == sorted((arm, seed) for arm in experiment.arms for seed in seeds)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_page_says_the_same(path: Path) -> None:
    content, results = published(path)
    page = (path.parents[1] / "lab.md").read_text(encoding="utf-8")
    section = page.split(f"## {content['experiment']}\n")[1].split("\n## ")[0]
    assert results.earlier == ("Measured before these rules were written" in section)
    for verdict in content["verdicts"]:
        assert verdict["sentence"][1:] in page
        assert f"| {verdict['claim']} | *{verdict['word']}* |" in page
    assert path.with_suffix(".svg").is_file()


def test_quick_runs_know_the_words_of_the_full_set() -> None:
    """A copy of docs/lab/verdicts.json is packaged, so that a quick verdict that differs can say so."""
    full = [content for content, _ in map(published, PUBLISHED) if "--quick" not in content["command"]]
    words = {content["experiment"]: [verdict["word"] for verdict in content["verdicts"]] for content in full}
    assert store.published() == words, "cp docs/lab/verdicts.json clearhead/lab/"
    experiment = find("memory")
    (one, two), other = words["memory"], Verdict("cannot tell at this size", "")
    assert disagreements(experiment, [Verdict(one, ""), Verdict(two, "")]) == []
    assert disagreements(experiment, [Verdict(one, ""), other]) == [f"“{experiment.parts[1].claim}” {two}"]


def scaling(losses: dict[str, float], entropy: float = 0.05, gradients: tuple[float, ...] = (0.01, 0.01)) -> list[str]:
    """The words for made-up numbers: losses by arm, and what the unscaled arm has before training."""
    cells = []
    for arm, loss in losses.items():
        plain = arm == "unscaled"
        start = {
            "entropy": [entropy if plain else 0.9],
            "median_by_keys": [*gradients] if plain else [0.2, 0.2],
            "mean_by_keys": [0.2, 0.2],
            "tiny_by_keys": [0.5, 0.5],
        }
        for seed in (1, 2, 3):
            found = loss + 0.01 * seed
            cells.append(Cell(arm, seed, {**start, "last_loss": found, "loss": [found], "spikes": 2.0 + 0.1 * seed}))
    sizes = {"d_k": [512], "keys": [16, 512], "trained_d_k": [128]}
    return [verdict.word for verdict in find("scaling").verdicts(Results(sizes, cells))]


def test_a_changed_number_changes_the_verdict() -> None:
    """Verdicts are read off the numbers, not remembered, each part by its own."""
    holds, fails, unclear = "holds", "does not hold here", "cannot tell at this size"
    start, steps = "unscaled, small start", "unscaled, small start and steps"
    losses = {"scaled": 0.2, "unscaled": 0.8, start: 0.5, steps: 0.21}
    assert scaling(losses) == [holds, holds, holds, fails, fails, holds]
    assert scaling(losses | {start: 0.2})[4] == holds
    assert scaling(losses | {steps: 0.7})[5] == fails
    assert scaling(losses | {"unscaled": 0.1})[2:] == [fails, fails, unclear, unclear]
    assert scaling(losses, entropy=0.6)[0] == fails
    assert scaling(losses, gradients=(0.01, 0.1))[1] == "holds only if"
    assert scaling(losses, gradients=(0.1, 0.1))[1] == fails


@pytest.mark.parametrize(
    ("smoothed", "averaged", "words"),
    [
        (0.05, 0.05, ["holds", "holds", "holds"]),
        (0.05, 0.0, ["holds", "holds", "cannot tell at this size"]),
        (-0.05, 0.05, ["holds", "does not hold here", "holds"]),
        (-0.05, -0.05, ["holds", "does not hold here", "does not hold here"]),
    ],
)
def test_each_part_of_a_claim_counts(smoothed: float, averaged: float, words: list[str]) -> None:
    """Label smoothing and averaging: one may hold and the other not."""
    cells = []
    for seed in (1, 2, 3):
        noise = 0.001 * seed
        for arm, exact in (("none", 0.8), ("0.1", 0.8 + smoothed), ("0.3", 0.8)):
            gain = averaged + noise - 0.002
            numbers = {"loss": 0.3 + 0.1 * (arm != "none") + noise, "exact": exact + noise * (arm == "0.1")}
            cells.append(Cell(arm, seed, {**numbers, "mean_exact": numbers["exact"] + gain}))
    assert [verdict.word for verdict in find("label-smoothing").verdicts(Results({}, cells))] == words


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    if not PUBLISHED:
        pytest.skip("no results are published yet")
    content, results = published(PUBLISHED[0])
    experiment = find(content["experiment"])
    quick = "--quick" in content["command"]
    for cell in results.cells:
        fresh = replace(cell, seed=cell.seed % 100 + FIRST_SEED - 1)  # as if measured now
        path = store.cell_path(tmp_path, experiment.name, quick, fresh.arm, fresh.seed)
        store.save_cell(path, experiment.sizes(quick), fresh, 1.0)
    write_report(everything(), tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "lab.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page.replace("xlink:href", "")), (
        "the page refers to other files"
    )
    assert len(re.findall(r'\bid="([^"]+)"', page)) == len(set(re.findall(r'\bid="([^"]+)"', page)))
    assert content["verdicts"][0]["word"] in page
    first = (tmp_path / "out" / "lab" / f"{experiment.name}.svg").read_bytes()
    write_report(everything(), tmp_path, tmp_path / "again")
    assert (tmp_path / "again" / "lab" / f"{experiment.name}.svg").read_bytes() == first  # same numbers, same picture


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results in"):
        write_report(everything(), tmp_path, tmp_path / "out")
