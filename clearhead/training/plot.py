"""A run in one picture: loss, learning rate and gradient norm by step, as PNG and SVG."""

from pathlib import Path

from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.training.report import read_metrics


def plot(run: Run) -> list[Path]:
    """Draw `metrics.jsonl` into the run's plots/; returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read_metrics(run.path / "metrics.jsonl")
    if not rows:
        raise InputError(f"{run.path / 'metrics.jsonl'} is empty: nothing to draw yet")
    steps = [row["step"] for row in rows]
    validated = [row for row in rows if "validation" in row]
    figure, (losses, rates, norms) = pyplot.subplots(
        3, 1, figsize=(8, 9), sharex=True, height_ratios=(3, 1, 1), layout="constrained"
    )
    losses.plot(steps, [row["loss"] for row in rows], label="training (smoothed as trained)", linewidth=1)
    if validated:
        points = [row["validation"]["loss"] for row in validated]
        losses.plot([row["step"] for row in validated], points, "o-", label="validation (not smoothed)", markersize=3)
        lowest = min(range(len(points)), key=points.__getitem__)
        losses.annotate(
            f"{points[lowest]:.3f}", (validated[lowest]["step"], points[lowest]), (0, 8), textcoords="offset points"
        )
    losses.set(ylabel="loss per token (nats)", title=str(run.path))
    losses.legend()
    rates.plot(steps, [row["rate"] for row in rows], linewidth=1)
    rates.set(ylabel="learning rate")
    norms.plot(steps, [row["norm"] for row in rows], linewidth=0.7)
    norms.set(ylabel="gradient norm", xlabel="step", yscale="log")
    for axes in (losses, rates, norms):
        axes.grid(alpha=0.3)
    folder = run.path / "plots"
    folder.mkdir(exist_ok=True)
    files = []
    for kind in ("png", "svg"):
        path = folder / f"training.{kind}"
        temporary = folder / f".training.{kind}"
        figure.savefig(temporary, format=kind, dpi=120)
        temporary.replace(path)
        files.append(path)
    pyplot.close(figure)
    return files
