"""Pictures of attention: every layer and head at once, as PNG, SVG or PDF.

Dark is little and bright is much, in a colour map that people with colour-blindness read as well (cividis). Cells that
a mask forbids are hatched, so that "was not allowed to look" and "looked and saw nothing of use" stay different. The
title says what the model read and what it answered.
"""

import functools
import io
import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from clearhead.decoding.attention import Panel
from clearhead.disk import write_whole
from clearhead.errors import InputError

COLOURS, FRAME = "cividis", "#e4572e"
FORMATS = (".png", ".svg", ".pdf")
FALLBACKS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Unifont")


def draw(panels: Sequence[Panel], path: Path, title: str, note: str = "") -> None:
    """Write the picture, with a note in small print below the title; the file appears whole or not at all."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"cannot draw {path}: its name must end in one of {', '.join(FORMATS)}")
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"font.family": available_fonts(), "hatch.linewidth": 0.4, "svg.fonttype": "none"}):
        figure(panels, title, note).savefig(content, format=path.suffix[1:].lower(), dpi=100)
    write_whole(path, content.getvalue())


def title_of(text: str, answer: str, given: bool = False) -> str:
    """What the model read, and what it answered or was given to write."""
    return f"{text}  →  {answer}{'  (given)' if given else ''}" if answer else text


def figure(panels: Sequence[Panel], title: str, note: str = "") -> Any:
    """A matplotlib figure: a row of heads for each layer, the kinds of attention one below the other."""
    from matplotlib.figure import Figure

    # inches: of a token, between pictures, above a row of them, and a letter and a line of a mark above its head
    cell, gap, head_line, letter, mark_line = 0.17, 0.3, 0.6, 0.065, 0.14
    longest = max((len(drawable(name)) for panel in panels for name in (*panel.rows, *panel.columns)), default=1)
    margin = 0.075 * longest + 0.2  # for the names of tokens, beside and below
    said = max((letter * len(mark.line) for panel in panels for mark in panel.marks), default=0)
    sizes = [(max(1.6, said - gap, cell * len(panel.columns)), max(1.6, cell * len(panel.rows))) for panel in panels]
    above = [head_line + mark_line * max(map(len, lines_by_head(panel)), default=0) for panel in panels]
    widths = [panel.weights.size(0) * (wide + gap) for panel, (wide, _) in zip(panels, sizes, strict=True)]
    width = max(6.6, margin + gap + max(widths, default=0))
    titles, notes = textwrap.wrap(drawable(title), int(10 * width)), textwrap.wrap(note, int(15 * width))
    header = 0.7 + 0.22 * len(titles) + 0.17 * len(notes)
    height = header + sum(high + margin + head for (_, high), head in zip(sizes, above, strict=True))
    made = Figure(figsize=(width, height))
    top = height - 0.25
    for line in titles:
        made.text(0.1 / width, top / height, line, va="center", fontsize=12)
        top -= 0.22
    for line in notes:
        made.text(0.1 / width, top / height, line, va="center", fontsize=8, color="0.3")
        top -= 0.17
    masked = any(not panel.may_attend.all() for panel in panels)
    draw_scale(made, 0.1 / width, top / height, 1.6 / width, 0.12 / height, masked)
    top = height - header
    for panel, (wide, high), head_space in zip(panels, sizes, above, strict=True):
        made.text(0.1 / width, (top - 0.25) / height, f"{panel.kind}, layer {panel.layer}", fontsize=9, weight="bold")
        for head in range(panel.weights.size(0)):
            left, bottom = margin + gap + head * (wide + gap), top - head_space - high
            draw_head(made.add_axes((left / width, bottom / height, wide / width, high / height)), panel, head)
        top -= high + margin + head_space
    return made


def draw_scale(made: Any, left: float, bottom: float, wide: float, high: float, masked: bool) -> None:
    """The colour bar, and if a mask is drawn, what hatching means."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axis = made.add_axes((left, bottom - high, wide, high), label="scale")
    bar = made.colorbar(ScalarMappable(Normalize(0, 1), COLOURS), cax=axis, orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=["0", "0.5", "1"], fontsize=7)
    bar.ax.tick_params(length=2, pad=1)
    bar.outline.set_linewidth(0.5)
    hatched = "; hatched: masked" if masked else ""
    words = f"weight: the share of a row's attention that a column gets{hatched}"
    made.text(left + 1.1 * wide, bottom - high / 2, words, va="center", fontsize=8)


def draw_head(axis: Any, panel: Panel, head: int) -> None:
    """One head: a square for each pair of tokens."""
    from matplotlib.patches import Rectangle

    axis.imshow(panel.weights[head].numpy(), vmin=0, vmax=1, cmap=COLOURS, aspect="auto", interpolation="nearest")
    for row, seen in enumerate(panel.may_attend.tolist()):
        column = 0
        for allowed, run in groupby(seen):
            length = len(list(run))
            if not allowed:
                axis.add_patch(
                    Rectangle(
                        (column - 0.5, row - 0.5), length, 1, facecolor="white", edgecolor="0.55", hatch="////", lw=0
                    )
                )
            column += length
    for mark in panel.marks:
        if mark.head == head:
            corner = mark.columns.start - 0.5, mark.rows.start - 0.5
            size = len(mark.columns), len(mark.rows)
            axis.add_patch(Rectangle(corner, *size, fill=False, edgecolor=FRAME, lw=1.5, clip_on=False))
    lines = [f"head {head + 1}   {panel.entropies[head]:.1f} bits", *lines_by_head(panel)[head]]
    axis.set_title("\n".join(lines), fontsize=8)
    axis.set_xticks(range(len(panel.columns)), [drawable(name) for name in panel.columns], fontsize=7)
    for label in axis.get_xticklabels():
        label.set_rotation(90 if len(label.get_text()) > 2 else 0)
    rows = [drawable(name) for name in panel.rows] if head == 0 else []
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.tick_params(length=0, pad=2)
    if head == 0:
        axis.set_ylabel("predicted" if panel.kind.startswith("decoder") else "query", fontsize=7)


def lines_by_head(panel: Panel) -> list[list[str]]:
    """What the marks say about each head."""
    heads = range(panel.weights.size(0))
    return [[mark.line for mark in panel.marks if mark.head == head] for head in heads]


@functools.cache
def available_fonts() -> list[str]:
    """The fonts to look for a character in, in order; DejaVu Sans comes with matplotlib."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [name for name in FALLBACKS if name in installed]


@functools.cache
def drawable_characters() -> frozenset[int]:
    from matplotlib import font_manager, ft2font

    return frozenset().union(
        *(ft2font.FT2Font(font_manager.findfont(name)).get_charmap() for name in available_fonts())
    )


def drawable(text: str) -> str:
    """What no installed font can draw becomes its code point: an empty box would tell nothing."""
    known = drawable_characters()
    text = "".join(character if ord(character) in known else f"U+{ord(character):04X}" for character in text)
    return text.replace("$", r"\$")  # not mathematics
