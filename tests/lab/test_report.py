"""What is published: every verdict follows from its stored numbers, and the report can be written from them alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import InputError
from clearhead.lab import store
from clearhead.lab.catalogue import everything, find
from clearhead.lab.experiment import FIRST_SEED, Cell, Results, Verdict
from clearhead.lab.report import write_report

PUBLISHED = sorted((Path(__file__).resolve().parents[2] / "docs" / "lab").glob("*.json"))


def published(path: Path) -> tuple[dict[str, Any], Results]:
    """A published document, and the results in it."""
    content = store.read_json(path)
    cells = [Cell(row["arm"], row["seed"], row["numbers"]) for row in content["cells"]]
    return content, Results(content["sizes"], cells)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_verdicts_follow_from_their_numbers(path: Path) -> None:
    content, results = published(path)
    experiment = find(content["experiment"])
    verdict = experiment.verdict(results)
    assert {"word": verdict.word, "sentence": verdict.sentence} == content["verdict"]
    quick = "--quick" in content["command"]
    assert store.settled(results.sizes) == store.settled(experiment.sizes(quick))  # else the report is out of date
    cells = [(cell.arm, cell.seed) for cell in results.cells]
    seeds = range(FIRST_SEED, FIRST_SEED + results.seeds)  # no pilots
    assert sorted(cells) == sorted((arm, seed) for arm in experiment.arms for seed in seeds)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_page_says_the_same(path: Path) -> None:
    content, _ = published(path)
    page = (path.parents[1] / "lab.md").read_text(encoding="utf-8")
    assert f"## {content['experiment']}\n" in page
    assert content["verdict"]["sentence"][1:] in page
    assert path.with_suffix(".svg").is_file()


def test_a_changed_number_changes_the_verdict() -> None:
    """The verdict is read off the numbers, not remembered: without harm, scaling does not hold."""
    experiment = find("scaling")
    arms = {"scaled": 0.2, "unscaled": 0.8, "unscaled, small start": 0.3}

    def verdict(losses: dict[str, float], entropy: float = 0.05, gradient: float = 0.05) -> Verdict:
        cells = [
            Cell(
                arm,
                seed,
                {
                    "entropy": [0.9 if arm != "unscaled" else entropy],
                    "gradient": [0.2 if arm != "unscaled" else gradient],
                    "last_loss": loss + 0.01 * seed,
                },
            )
            for arm, loss in losses.items()
            for seed in (1, 2, 3)
        ]
        sizes = {"d_k": [512], "trained_d_k": [128]}
        return experiment.verdict(Results(sizes, cells))

    assert verdict(arms).word == "holds only if"
    assert verdict(arms | {"unscaled, small start": 0.75}).word == "holds"
    assert verdict(arms | {"unscaled": 0.1}).word == "does not hold here"
    for kept, said in (({"entropy": 0.6}, "not saturated"), ({"gradient": 0.15}, "gradients shrink less")):
        assert verdict(arms, **kept).word == "does not hold here"
        assert said in verdict(arms, **kept).sentence


@pytest.mark.parametrize(
    ("smoothed", "averaged", "word"),
    [
        (0.05, 0.05, "holds"),
        (0.05, 0.0, "holds only if"),
        (-0.05, 0.05, "holds only if"),
        (-0.05, -0.05, "does not hold here"),
        (-0.05, 0.0, "cannot tell at this size"),
    ],
)
def test_both_halves_of_a_claim_count(smoothed: float, averaged: float, word: str) -> None:
    """Label smoothing and averaging: the verdict on the two together follows from what each of them gains."""
    cells = []
    for seed in (1, 2, 3):
        noise = 0.001 * seed
        for arm, exact in (("none", 0.8), ("0.1", 0.8 + smoothed), ("0.3", 0.8)):
            gain = averaged + (noise if arm == "none" else 0) - 0.002
            numbers = {"loss": 0.3 + 0.1 * (arm != "none") + noise, "exact": exact + noise * (arm == "0.1")}
            cells.append(Cell(arm, seed, {**numbers, "mean_exact": numbers["exact"] + gain}))
    assert find("label-smoothing").verdict(Results({}, cells)).word == word


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    if not PUBLISHED:
        pytest.skip("no results are published yet")
    content, results = published(PUBLISHED[0])
    experiment = find(content["experiment"])
    quick = "--quick" in content["command"]
    for cell in results.cells:
        path = store.cell_path(tmp_path, experiment.name, quick, cell.arm, cell.seed)
        store.save_cell(path, experiment.sizes(quick), cell, 1.0)
    write_report(everything(), tmp_path, tmp_path / "out")
    page = (tmp_path / "out" / "lab.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page.replace("xlink:href", "")), (
        "the page refers to other files"
    )
    assert len(re.findall(r'\bid="([^"]+)"', page)) == len(set(re.findall(r'\bid="([^"]+)"', page)))
    assert content["verdict"]["word"] in page
    first = (tmp_path / "out" / "lab" / f"{experiment.name}.svg").read_bytes()
    write_report(everything(), tmp_path, tmp_path / "again")
    assert (tmp_path / "again" / "lab" / f"{experiment.name}.svg").read_bytes() == first  # same numbers, same picture


def test_a_report_of_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results in"):
        write_report(everything(), tmp_path, tmp_path / "out")
