"""A run over time: its metrics, while it is being trained as well, and the checkpoints kept, to scrub through."""

import math
from typing import Any

from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.training.report import METRICS, read_metrics

MOST_ROWS = 2_000  # lines of metrics that are sent; of more, every n-th
SHOWN = ("step", "loss", "rate", "norm", "tokens_per_second", "seconds", "validation")


def training(run: Run, after: int = 0) -> dict[str, Any]:
    """Metrics of the steps after `after`, oldest first, and the checkpoints."""
    path = run.path / METRICS
    try:
        rows = read_metrics(path, report=lambda said: None)
    except InputError:
        rows = []
    rows = [{key: finite(row[key]) for key in SHOWN if key in row} for row in rows if row["step"] > after]
    every = -(-len(rows) // MOST_ROWS) or 1
    kept = [row for number, row in enumerate(rows) if number % every == 0 or "validation" in row or row is rows[-1]]
    checkpoints = [
        {"name": one.name, "step": one.step, "loss": one.loss, "best": one.best, "latest": one.latest}
        for one in run.inventory()
        if one.problem is None
    ]
    return {"metrics": kept, "checkpoints": checkpoints}


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: None stands for them."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
