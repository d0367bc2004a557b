"""The report: every experiment with its claim, rule, verdict, figure and numbers, as Markdown and as one HTML page.

Both are made from the same entries. An entry is computed from stored numbers alone, and those numbers are written
beside the figures, so that whoever doubts a verdict can apply its rule again.
"""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.lab import store
from clearhead.lab.drawing import to_svg
from clearhead.lab.experiment import FIRST_SEED, Experiment, Results, Verdict

INTRODUCTION = (
    "People repeat claims about Transformers. Here each one is a small experiment: a claim, arms, seeds, a measure, "
    "and a rule for the verdict. Arms, sizes and rules were chosen with pilot runs, whose seeds lie below "
    f"{FIRST_SEED} and whose numbers are not shown; what is shown was measured afterwards, with seeds from "
    f"{FIRST_SEED} on. Ranges are 95% intervals over the seeds (Student's t); differences are taken seed by seed. The "
    "models are tiny, and a verdict speaks of them alone."
)


@dataclass(frozen=True)
class Entry:
    """One experiment with what was found."""

    experiment: Experiment
    results: Results
    verdict: Verdict
    quick: bool
    content: dict[str, Any]  # the JSON document
    svg: str


def entry(experiment: Experiment, folder: Path) -> Entry | None:
    """The full results of an experiment if all its seeds are there, otherwise the quick ones, or what there is."""
    found = {quick: results for quick in (False, True) if (results := store.load(experiment, folder, quick))}
    if not found:
        return None
    whole = [quick for quick, results in found.items() if results.seeds >= experiment.sizes(quick)["seeds"]]
    quick = (whole or [*found])[0]
    results = found[quick]
    content = store.gathered(experiment, results, folder, quick)
    return Entry(experiment, results, experiment.verdict(results), quick, content, to_svg(experiment.figure(results)))


def write_report(experiments: list[Experiment], folder: Path, out: Path) -> list[Entry]:
    """`lab.md` and `lab.html`, and in `lab/` the figures and the numbers."""
    entries = [found for experiment in experiments if (found := entry(experiment, folder)) is not None]
    if not entries:
        raise InputError(f"no results in {folder}; run some experiments first, for example: clearhead lab run scaling")
    (out / "lab").mkdir(parents=True, exist_ok=True)
    for one in entries:
        name = one.experiment.name
        write_whole(out / "lab" / f"{name}.svg", one.svg)
        store.write_json(out / "lab" / f"{name}.json", one.content)
    shown = {one.experiment.name for one in entries}
    missing = ", ".join(experiment.name for experiment in experiments if experiment.name not in shown)
    introduction = INTRODUCTION + (f" Not run yet: {missing}." if missing else "")
    write_whole(out / "lab.md", markdown(entries, introduction))
    write_whole(out / "lab.html", page(entries, introduction))
    return entries


def numbers_table(one: Entry) -> list[list[str]]:
    """A heading row, then a row for each arm."""
    columns = one.experiment.columns
    found = [[arm, *(str(one.results.interval(arm, name)) for name in columns)] for arm in one.experiment.arms]
    return [["arm", *columns.values()], *found]


def size_words(one: Entry) -> str:
    """Sizes as `steps 200, d_k 8 32 128`."""
    words = []
    for name, value in one.results.sizes.items():
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(words)


def finding(one: Entry) -> str:
    """The verdict as a sentence of its own, or as the rest of "holds only if …"."""
    sentence = one.verdict.sentence
    return sentence if one.verdict.word == "holds only if" else sentence[:1].upper() + sentence[1:]


def full_stop(one: Entry) -> str:
    return "" if one.verdict.word == "holds only if" else "."


def source_link(one: Entry) -> str:
    return f"clearhead/lab/experiments/{one.experiment.name.replace('-', '_')}.py"


def markdown(entries: list[Entry], introduction: str) -> str:
    parts = [
        "# The lab",
        introduction,
        "This page is written by `clearhead lab report --out docs`; the numbers behind each figure are in "
        "[lab/](lab/). [How to add an experiment](adding-an-experiment.md).",
        table(
            [
                ["claim", "verdict"],
                *(
                    [
                        f"[{one.experiment.name}](#{one.experiment.name}): {one.experiment.claim}",
                        f"*{one.verdict.word}*",
                    ]
                    for one in entries
                ),
            ]
        ),
    ]
    for one in entries:
        experiment = one.experiment
        parts += [
            f"## {experiment.name}",
            f"**Claim.** {experiment.claim}",
            f"**Verdict: *{one.verdict.word}*{full_stop(one)}** {finding(one)}.",
            f"![{experiment.measured}](lab/{experiment.name}.svg)",
            table(numbers_table(one)),
            "**Arms.** " + "; ".join(f"*{arm}*: {what}" for arm, what in experiment.arms.items()) + ".",
            f"**Measured.** {experiment.measured}",
            f"**Rule.** {experiment.rule}",
            f"`{one.content['command']}` ({size_words(one)}), {one.content['seconds'] / 60:.1f} minutes of measuring, "
            f"summed over arms and seeds: {one.content['machine']}. [Code](../{source_link(one)}), "
            f"[numbers](lab/{experiment.name}.json).",
        ]
    return "\n\n".join(parts) + "\n"


def table(rows: list[list[str]]) -> str:
    """A Markdown table of a heading row and others."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


CSS = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem }
td, th { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid #ddd; vertical-align: top }
svg { max-width: 100%; height: auto } .small { color: #555; font-size: 0.85rem } b.verdict { color: #0072B2 }
"""


def page(entries: list[Entry], introduction: str) -> str:
    """One HTML file that needs nothing from elsewhere."""
    rows = "".join(
        f'<tr><td><a href="#{one.experiment.name}">{one.experiment.name}</a></td>'
        f"<td>{html.escape(one.experiment.claim)}</td><td>{one.verdict.word}</td></tr>"
        for one in entries
    )
    body = "".join(map(section, entries))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Clearhead: the lab</title>'
        f"<style>{CSS}</style></head><body><h1>The "
        f"lab</h1><p>{html.escape(introduction)}</p><table><tr><th></th><th>claim</th><th>verdict</th></tr>{rows}</table>{body}</body></html>\n"
    )


def section(one: Entry) -> str:
    """One experiment of the HTML page."""
    experiment = one.experiment
    # of the SVG file only the element, since a page has no XML declaration; and ids must not clash between figures
    svg = one.svg[one.svg.index("<svg") :]
    for old, new in (
        ('id="', f'id="{experiment.name}-'),
        ('="#', f'="#{experiment.name}-'),
        ("url(#", f"url(#{experiment.name}-"),
    ):
        svg = svg.replace(old, new)
    heading, *rows = numbers_table(one)
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    arms = "; ".join(f"<i>{html.escape(arm)}</i>: {html.escape(what)}" for arm, what in experiment.arms.items())
    return (
        f'<h2 id="{experiment.name}">{experiment.name}</h2><p><b>Claim.</b> {html.escape(experiment.claim)}</p>'
        f'<p><b class="verdict">{one.verdict.word}{full_stop(one)}</b> {html.escape(finding(one))}.</p>{svg}'
        f"<table><tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in heading)}</tr>{cells}</table><p><b>Arms.</b> "
        f"{arms}.</p><p><b>Measured.</b> {html.escape(experiment.measured)}</p><p><b>Rule.</b> "
        f"{html.escape(experiment.rule)}</p>"
        f'<p class="small"><code>{one.content["command"]}</code> ({html.escape(size_words(one))}), '
        f"{one.content['seconds'] / 60:.1f} minutes of measuring, summed over arms and seeds: "
        f"{html.escape(one.content['machine'])}.</p>"
    )
