"""Pictures of attention: every layer and head at once, as PNG, SVG, PDF or a page that tells each weight.

Dark is little and bright is much, in a colour map that people with colour-blindness read as well (cividis). Cells that
a mask forbids are hatched, so that "was not allowed to look" and "looked and saw nothing of use" stay different.
"""

import functools
import html
import json
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from clearhead.decoding.attention import Panel
from clearhead.errors import InputError

FORMATS = (".png", ".svg", ".pdf", ".html")
FALLBACKS = ("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans Arabic", "Noto Sans Devanagari", "Unifont")


def draw(panels: Sequence[Panel], path: Path, title: str) -> None:
    """Write the picture; the file appears whole or not at all."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"cannot draw {path}: its name must end in one of {', '.join(FORMATS)}")
    part = path.with_name(f".{os.getpid()}.{path.name}")  # keeps its ending, which says the format
    try:
        if path.suffix.lower() == ".html":
            part.write_text(page(panels, title), encoding="utf-8")
        else:
            from matplotlib import rc_context

            with rc_context({"font.family": available_fonts(), "hatch.linewidth": 0.4, "svg.fonttype": "none"}):
                figure(panels, title).savefig(part, dpi=100)
        os.replace(part, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def figure(panels: Sequence[Panel], title: str) -> Any:
    """A matplotlib figure: a row of heads for each layer, the kinds of attention one below the other."""
    from matplotlib.figure import Figure

    cell, gap, head_line = 0.17, 0.3, 0.6  # inches: of a token, between pictures, above a row of them
    longest = max((len(drawable(name)) for panel in panels for name in (*panel.rows, *panel.columns)), default=1)
    margin = 0.075 * longest + 0.2  # for the names of tokens, beside and below
    sizes = [(max(1.6, cell * len(panel.columns)), max(1.6, cell * len(panel.rows))) for panel in panels]
    width = (
        margin + gap + max(panel.weights.size(0) * (wide + gap) for panel, (wide, _) in zip(panels, sizes, strict=True))
    )
    height = gap + sum(high + margin + head_line for _, high in sizes)
    made = Figure(figsize=(width, height))
    made.text(0.5, 1 - 0.6 * gap / height, drawable(title), ha="center", va="center", fontsize=11)
    top = height - gap
    for panel, (wide, high) in zip(panels, sizes, strict=True):
        label = f"{panel.kind}, layer {panel.layer}"
        made.text(0.1 / width, (top - 0.25) / height, label, fontsize=9, weight="bold")
        for head in range(panel.weights.size(0)):
            left, bottom = margin + gap + head * (wide + gap), top - head_line - high
            draw_head(made.add_axes((left / width, bottom / height, wide / width, high / height)), panel, head)
        top -= high + margin + head_line
    return made


def draw_head(axis: Any, panel: Panel, head: int) -> None:
    """One head: a square for each pair of tokens."""
    from matplotlib.patches import Rectangle

    axis.imshow(panel.weights[head].numpy(), vmin=0, vmax=1, cmap="cividis", aspect="auto", interpolation="nearest")
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
    axis.set_title(f"head {panel.first_head + head}   {panel.entropies[head]:.1f} bits", fontsize=8)
    axis.set_xticks(range(len(panel.columns)), [drawable(name) for name in panel.columns], rotation=90, fontsize=7)
    rows = [drawable(name) for name in panel.rows] if head == 0 else []
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    axis.tick_params(length=0, pad=2)
    if head == 0:
        axis.set_ylabel("predicted" if panel.kind.startswith("decoder") else "query", fontsize=7)


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


# ---- a page that tells each weight ---------------------------------------------------------------------------------

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>TITLE</title>
<style>
body { font: 14px system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff }
h1 { font-size: 1.2em } h2 { font-size: 1em; margin: 1.6em 0 .3em }
.heads { display: flex; flex-wrap: wrap; gap: 1.2em }
figure { margin: 0 } figcaption { font-size: .85em; color: #555 }
canvas { image-rendering: pixelated; cursor: crosshair }
#told { position: sticky; top: 0; background: #fffd; padding: .4em 0; min-height: 1.4em; font-family: monospace }
</style>
<h1>TITLE</h1>
<p>Rows look at columns. Bright is much, dark is little; hatched cells are masked. Point at a cell.</p>
<div id="told">&nbsp;</div><div id="all"></div>
<script>
const panels = DATA, colours = COLOURS, size = 14, told = document.getElementById("told");
for (const panel of panels) {
  const section = document.createElement("section"), heads = document.createElement("div");
  section.innerHTML = `<h2>${panel.kind}, layer ${panel.layer}</h2>`;
  heads.className = "heads"; section.append(heads); document.getElementById("all").append(section);
  panel.weights.forEach((weights, head) => {
    const widest = names => 7 * Math.max(...names.map(name => name.length)) + 8;
    const left = widest(panel.rows), top = widest(panel.columns), canvas = document.createElement("canvas");
    canvas.width = left + size * panel.columns.length; canvas.height = top + size * panel.rows.length;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${panel.kind}, layer ${panel.layer}, head ${panel.first + head}`);
    const pen = canvas.getContext("2d"); pen.font = "11px monospace"; pen.textBaseline = "middle";
    pen.textAlign = "right";
    panel.rows.forEach((name, row) => pen.fillText(name, left - 4, top + (row + .5) * size));
    panel.columns.forEach((name, column) => {
      pen.save(); pen.translate(left + (column + .5) * size, top - 4); pen.rotate(-Math.PI / 2);
      pen.textAlign = "left"; pen.fillText(name, 0, 0); pen.restore();
    });
    weights.forEach((line, row) => line.forEach((weight, column) => {
      const x = left + column * size, y = top + row * size;
      if (panel.seen[row][column]) {
        pen.fillStyle = colours[Math.round(weight * (colours.length - 1))]; pen.fillRect(x, y, size, size);
      } else {
        pen.strokeStyle = "#999"; pen.beginPath();
        pen.moveTo(x, y + size); pen.lineTo(x + size, y); pen.stroke();
      }
    }));
    canvas.onmousemove = event => {
      const row = Math.floor((event.offsetY - top) / size), column = Math.floor((event.offsetX - left) / size);
      if (row < 0 || column < 0 || row >= panel.rows.length || column >= panel.columns.length) return;
      const seen = panel.seen[row][column], weight = weights[row][column];
      told.textContent = `${panel.kind}, layer ${panel.layer}, head ${panel.first + head}: ` +
        `${panel.rows[row]} → ${panel.columns[column]}  ${seen ? weight.toFixed(3) : "masked"}`;
    };
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    caption.textContent = `head ${panel.first + head}, entropy ${panel.entropies[head].toFixed(1)} bits`;
    figure.append(canvas, caption); heads.append(figure);
  });
}
</script></html>
"""


def page(panels: Sequence[Panel], title: str) -> str:
    """One file without anything from outside; pointing at a cell tells its weight."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    data = [
        {
            "kind": panel.kind,
            "layer": panel.layer,
            "rows": panel.rows,
            "columns": panel.columns,
            "seen": panel.may_attend.int().tolist(),
            "weights": [[[round(w, 4) for w in row] for row in head] for head in panel.weights.tolist()],
            "entropies": panel.entropies,
            "first": panel.first_head,
        }
        for panel in panels
    ]
    colours = [to_hex(colormaps["cividis"](i / 63)) for i in range(64)]
    # "</" would end the script early, whatever the text says
    inside = json.dumps(data, ensure_ascii=False).replace("</", "<\\/")
    return PAGE.replace("COLOURS", json.dumps(colours)).replace("TITLE", html.escape(title)).replace("DATA", inside, 1)
