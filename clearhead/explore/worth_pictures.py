"""A picture of worth: a square for each head, the attentions one below the other, and the layers beside them."""

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearhead.decoding.pictures import available_fonts, drawable
from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.explore.worth import Worth, Worths

FORMATS = (".png", ".svg", ".pdf")


def draw_worths(found: Worths, path: Path, title: str) -> None:
    """Write the picture; the file appears whole or not at all."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"cannot draw {path}: its name must end in one of {', '.join(FORMATS)}")
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"font.family": available_fonts(), "svg.fonttype": "none"}):
        figure(found, title).savefig(content, format=path.suffix[1:].lower(), dpi=120)
    write_whole(path, content.getvalue())


def figure(found: Worths, title: str) -> Any:
    """A matplotlib figure: from white (worth nothing) to orange (most); purple where the answer gains without."""
    from matplotlib.figure import Figure

    rows = by_attention(found.heads)
    heads = max(len(row) for row in rows.values())
    cell, left = 0.62, 1.7
    width = max(6.0, left + cell * heads + 2.4)
    lines = textwrap.wrap(drawable(title), int(11 * width))[:3]
    height = 1.0 + 0.2 * len(lines) + 0.42 * len(rows)
    made = Figure(figsize=(width, height))
    made.text(0.15 / width, 1 - 0.2 / height, "\n".join(lines), va="top", fontsize=11)
    bottom, high = 0.55 / height, 0.42 * len(rows) / height
    axis = made.add_axes((left / width, bottom, cell * heads / width, high))
    grid = [[one.worth for one in row] for row in rows.values()]
    squares(axis, grid)
    axis.set_yticks(range(len(rows)), list(rows), fontsize=9)
    axis.set_xticks(range(heads), [str(head + 1) for head in range(heads)], fontsize=9)
    axis.set_xlabel("head: nats that the answer loses without it", fontsize=9)
    layers = made.add_axes(((left + cell * heads + 1.3) / width, bottom, 0.9 / width, high))
    squares(layers, [[one.worth] for one in found.layers])
    layers.set_yticks(range(len(found.layers)), [one.name for one in found.layers], fontsize=9)
    layers.set_xticks([])
    layers.set_xlabel("layer", fontsize=9)
    return made


def squares(axis: Any, grid: Sequence[Sequence[float]]) -> None:
    """Numbers on coloured ground, each grid on a scale of its own."""
    most = max((abs(value) for row in grid for value in row), default=1) or 1
    axis.imshow(grid, cmap="PuOr_r", vmin=-most, vmax=most, aspect="auto")
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            ink = "white" if abs(value) > 0.6 * most else "black"
            axis.text(x, y, number(value), ha="center", va="center", fontsize=8, color=ink)
    axis.tick_params(length=0)


def number(value: float) -> str:
    """Two places, a true minus, and no minus before nothing."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def by_attention(heads: Sequence[Worth]) -> dict[str, list[Worth]]:
    """The heads of each attention, by its name: decoder.2.cross."""
    rows: dict[str, list[Worth]] = {}
    for one in heads:
        rows.setdefault(one.name.rsplit(".", 1)[0], []).append(one)
    return rows
