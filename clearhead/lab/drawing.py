"""How the lab's figures look: colours that the colour-blind can tell apart, markers and dashes for those who print.

Lines are labelled where they end instead of in a legend, each label with its line's marker, so that it is found without
colours; intervals are drawn wherever there is more than one seed. The files are SVG that comes out the same from the
same numbers.
"""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from clearhead.lab.intervals import Interval

# Okabe and Ito's palette, without its yellow, which is too light for lines
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (6, 3)))

STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "figure.dpi": 110,
    "svg.hashsalt": "clearhead",
    "svg.fonttype": "none",
}


def panels(count: int, width: float = 4.9, height: float = 3.5) -> tuple[Figure, list[Axes]]:
    """Up to three axes in a row, more in two rows."""
    rows = 1 if count <= 3 else 2
    columns = -(-count // rows)
    with rc_context(STYLE):
        # not by pyplot, whose window system is the caller's to choose; the canvas is for `label_ends`, which measures
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
    flat = list(axes.flat)
    for spare in flat[count:]:
        spare.remove()
    return figure, flat[:count]


def lines(
    axes: Axes,
    x: Sequence[float],
    series: Mapping[str, Sequence[Interval]],
    xlabel: str,
    ylabel: str,
    title: str = "",
    log: str = "",  # "x", "y" or "xy"
    order: Sequence[str] = (),  # all names of the figure, so that a name looks the same in every panel
    share: bool = False,  # what is drawn lies between 0 and 1, wherever intervals reach
    least: float = -math.inf,  # what no value can be below: bands end there
) -> None:
    """One line a series, with its interval as a band and its name at its end."""
    names = list(order) or list(series)
    for name, points in series.items():
        look = names.index(name)
        at = list(x)[: len(points)]
        colour = COLOURS[look % len(COLOURS)]
        axes.plot(
            at,
            [point.mean for point in points],
            color=colour,
            marker=MARKERS[look % len(MARKERS)],
            linestyle=DASHES[look % len(DASHES)],
            markersize=4.5,
            linewidth=1.6,
            markevery=max(1, len(at) // 12),
        )
        low = [logarithmic_low(p) if "y" in log else max(least, p.low) for p in points]
        axes.fill_between(at, low, [p.high for p in points], color=colour, alpha=0.15, linewidth=0)
    finish(axes, xlabel, ylabel, title)
    if "x" in log:
        # powers of two are what lengths and widths are made of
        axes.set_xscale("log", base=2)
        if len(x) <= 10:
            shown = [f"{value:g}" if value < 10_000 else f"{value / 1000:.0f}k" for value in x]
            axes.set_xticks(list(x), shown, fontsize=8 if len(x) > 6 else None)  # many stand close together
            axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))  # updates, layers: what is counted
    if "y" in log:
        axes.set_yscale("log")
        plain_decades(axes.yaxis, axes.get_ylim())
    if share:
        axes.set_ylim(-0.03, 1.03)
    ends = {name: (list(x)[len(points) - 1], points[-1].mean) for name, points in series.items() if points}
    label_ends(axes, ends, names)


def plain_decades(axis: Any, limits: tuple[float, float]) -> None:
    """Over few decades, more ticks, with ordinary numbers instead of powers of ten."""
    if limits[1] / limits[0] < 1000:
        few = limits[1] / limits[0] < 10
        axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if few else (1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def logarithmic_low(point: Interval) -> float:
    """On a logarithmic axis an interval that reaches zero has no low end; then as far below as the high is above."""
    return max(point.low, point.mean**2 / point.high) if point.high > 0 else point.mean


def label_ends(axes: Axes, ends: Mapping[str, tuple[float, float]], names: Sequence[str]) -> None:
    """Names beside the last points, moved apart where they would overlap."""
    axes.figure.canvas.draw()
    height = axes.bbox.height
    need = 12.5 * axes.figure.dpi / 72 / height  # a line of text, as a share of the axes' height
    spots: list[tuple[float, float, str]] = []
    for name, (x, y) in ends.items():
        across, up = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
        spots.append((float(up), float(across), name))
    heights: list[float] = []
    for up, _, _ in sorted(spots):
        heights.append(max(up, heights[-1] + need) if heights else max(0.0, up))
    ceiling = 1.0
    for place in reversed(range(len(heights))):  # and down again, where they would leave the picture
        heights[place] = min(heights[place], ceiling)
        ceiling = heights[place] - need
    beside = axes.transAxes + ScaledTranslation(10 / 72, 0, axes.figure.dpi_scale_trans)
    for up, (true, across, name) in zip(heights, sorted(spots), strict=True):
        look = names.index(name)
        colour, marker = COLOURS[look % len(COLOURS)], MARKERS[look % len(MARKERS)]
        axes.plot([across], [up], marker=marker, color=colour, markersize=4.5, transform=beside, clip_on=False)
        axes.annotate(
            name,
            (across, up),
            xycoords="axes fraction",
            xytext=(15, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            annotation_clip=False,
        )
        if abs(up - true) > need / 2:  # a thread from a label that had to move to its line
            axes.annotate(
                "",
                (across, true),
                xytext=(across, up),
                xycoords="axes fraction",
                textcoords=beside,
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "shrinkA": 3, "shrinkB": 2},
                annotation_clip=False,
            )


def dots(
    axes: Axes,
    series: Mapping[str, Interval],
    xlabel: str,
    title: str = "",
    log: bool = False,
    order: Sequence[str] = (),
) -> None:
    """One row a name: a mark at the mean, a line over the interval, and the number beside it."""
    names = list(order) or list(series)
    for row, (name, value) in enumerate(series.items()):
        look = names.index(name)
        colour = COLOURS[look % len(COLOURS)]
        axes.plot([value.low, value.high], [row, row], color=colour, linewidth=2)
        axes.plot([value.mean], [row], color=colour, marker=MARKERS[look % len(MARKERS)], markersize=6, linestyle="")
        axes.annotate(
            f"{value.mean:.3g}", (value.mean, row), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8
        )
    axes.set_yticks(range(len(series)), list(series))
    axes.set_ylim(len(series) - 0.4, -0.7)
    axes.margins(x=0.12)
    if log:
        axes.set_xscale("log")
        plain_decades(axes.xaxis, axes.get_xlim())
    finish(axes, xlabel, "", title)


def finish(axes: Axes, xlabel: str, ylabel: str, title: str) -> None:
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, loc="left", fontsize=10.5)


def to_svg(figure: Figure) -> str:
    """The figure as the text of an SVG file, without the date that would make every run another file."""
    text = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()
