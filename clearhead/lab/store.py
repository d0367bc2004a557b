"""Where results are kept: one small JSON file for each arm and seed, so that an interrupted run goes on.

A file appears whole or not at all, and holds the sizes it was measured at: if these have changed since, it is measured
again. `gathered` puts all cells of an experiment into one document, for the report and for whoever wants to check it.
"""

import json
import math
from importlib import resources
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.lab.experiment import FIRST_SEED, Cell, Experiment, Results
from clearhead.machine import machine

FORMAT = "clearhead-lab-1"
WORDS = "verdicts.json"  # the words of the full set; a copy of the published one lies beside this file


def cell_path(folder: Path, name: str, quick: bool, arm: str, seed: int) -> Path:
    safe = "".join(letter if letter.isalnum() else "-" for letter in arm)
    return folder / name / ("quick" if quick else "full") / f"{safe}.{seed}.json"


def settled(sizes: Any) -> Any:
    """Sizes as JSON gives them back: tuples are lists. The number of seeds is no part of what a cell is."""
    return {key: value for key, value in json.loads(json.dumps(sizes)).items() if key != "seeds"}


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read it as a result of the lab: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{path}: not a result of the lab (its format is not {FORMAT!r})")
    return content


def save_cell(path: Path, sizes: Any, cell: Cell, seconds: float) -> None:
    for name, value in cell.numbers.items():
        if not all(math.isfinite(number) for number in (value if isinstance(value, list) else [value])):
            raise InputError(f"{cell.arm}, seed {cell.seed}: {name} = {value} is not finite and cannot be judged")
    write_json(
        path,
        {
            "format": FORMAT,
            "arm": cell.arm,
            "seed": cell.seed,
            "sizes": settled(sizes),
            "numbers": cell.numbers,
            "seconds": round(seconds, 2),
            "machine": machine(),
        },
    )


def load_cell(path: Path, sizes: Any) -> Cell | None:
    """The cell, if it was measured at these sizes."""
    if not path.is_file():
        return None
    content = read_json(path)
    if content["sizes"] != settled(sizes):
        return None
    return Cell(content["arm"], content["seed"], content["numbers"])


def load(experiment: Experiment, folder: Path, quick: bool) -> Results | None:
    """What has been measured at the present sizes, pilots aside: the seeds that every arm has, if there are any."""
    sizes = experiment.sizes(quick)
    found: dict[str, dict[int, Cell]] = {arm: {} for arm in experiment.arms}
    for path in sorted((folder / experiment.name / ("quick" if quick else "full")).glob("*.json")):
        cell = load_cell(path, sizes)
        if cell is not None and cell.arm in found and cell.seed >= FIRST_SEED:
            found[cell.arm][cell.seed] = cell
    common = set.intersection(*(set(cells) for cells in found.values()))
    cells = [found[arm][seed] for arm in experiment.arms for seed in sorted(common)]
    return experiment.results(sizes | {"seeds": len(common)}, cells) if common else None


def load_document(experiment: Experiment, path: Path) -> tuple[dict[str, Any], Results] | None:
    """A report's own document of an experiment (`gathered`), and the results in it; None if there is none, or if it has
    other arms than the experiment has now."""
    if not path.is_file():
        return None
    content = read_json(path)
    cells = [Cell(row["arm"], row["seed"], row["numbers"]) for row in content["cells"]]
    if {cell.arm for cell in cells} != set(experiment.arms):
        return None
    return content, experiment.results(content["sizes"], cells)


def measured(experiment: Experiment, folder: Path, quick: bool) -> tuple[int, int]:
    """Cells that a run would find, and cells in all."""
    sizes = experiment.sizes(quick)
    seeds = range(FIRST_SEED, FIRST_SEED + sizes["seeds"])
    paths = [cell_path(folder, experiment.name, quick, arm, seed) for arm in experiment.arms for seed in seeds]
    return sum(load_cell(path, sizes) is not None for path in paths), len(paths)


def gathered(experiment: Experiment, results: Results, folder: Path, quick: bool) -> dict[str, Any]:
    """All cells with the verdicts that follow from them, how long they took and where, as one JSON document."""
    paths = [cell_path(folder, experiment.name, quick, cell.arm, cell.seed) for cell in results.cells]
    contents = [read_json(path) for path in paths]
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "command": command(experiment, quick, results.seeds),
        "machine": "; ".join(sorted({content["machine"] for content in contents})),
        "seconds": round(sum(content["seconds"] for content in contents), 1),
        "sizes": dict(results.sizes),
        "verdicts": verdicts(experiment, results),
        "cells": [{"arm": cell.arm, "seed": cell.seed, "numbers": cell.numbers} for cell in results.cells],
    }


def verdicts(experiment: Experiment, results: Results) -> list[dict[str, str]]:
    """Each part of the claim with the word and the sentence that its rule gives."""
    found = zip(experiment.parts, experiment.verdicts(results), strict=True)
    return [{"claim": part.claim, "word": verdict.word, "sentence": verdict.sentence} for part, verdict in found]


def published() -> dict[str, list[str]]:
    """For each experiment of the published report the words of its verdicts, one for each part of the claim."""
    text = resources.files("clearhead.lab").joinpath(WORDS).read_text(encoding="utf-8")
    words: dict[str, list[str]] = json.loads(text)
    return words


def command(experiment: Experiment, quick: bool, seeds: int) -> str:
    """What to type to measure the same."""
    more = "" if seeds == experiment.sizes(quick)["seeds"] else f" --seeds {seeds}"
    return f"clearhead lab run {experiment.name}{' --quick' if quick else ''}{more}"
