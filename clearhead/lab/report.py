"""The report: every experiment with its claim, rule, verdict, figure and numbers, as Markdown and as one HTML page.

Both are made from the same entries. An entry is computed from stored numbers alone, and those numbers are written
beside the figures, so that whoever doubts a verdict can apply its rule again.
"""

import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.disk import write_whole
from clearhead.errors import InputError
from clearhead.lab import store
from clearhead.lab.drawing import to_svg
from clearhead.lab.experiment import EARLIER_SEED, FIRST_SEED, Experiment, Results, Sizes, Verdict

INTRODUCTION = (
    "People repeat claims about Transformers. Here each one is a small experiment: a claim, arms, seeds, a measure, "
    "and a rule for the verdict. Arms, sizes and rules were chosen with pilot runs, whose seeds lie below "
    f"{EARLIER_SEED} and whose numbers are not shown; what is shown was measured afterwards, with seeds from "
    f"{FIRST_SEED} on. Ranges are 95% intervals over the seeds (Student's t; for shares Wilson's, widened by how far "
    "seeds differ); differences are taken seed by seed. A claim that says several things has a verdict for each. The "
    "models are tiny, and a verdict speaks of them alone."
)


@dataclass(frozen=True)
class Entry:
    """One experiment with what was found."""

    experiment: Experiment
    results: Results
    verdicts: list[Verdict]
    quick: bool
    content: dict[str, Any]  # the JSON document
    svg: str


def entry(experiment: Experiment, folder: Path, document: Path) -> Entry | None:
    """The full results of an experiment if all its seeds are there; else what the report said before, if that was at
    full size; else the quick ones, what the report said before at all, or what there is."""
    found = {quick: results for quick in (False, True) if (results := store.load(experiment, folder, quick))}
    before = store.load_document(experiment, document)
    whole = [quick for quick, results in found.items() if results.seeds >= experiment.sizes(quick)["seeds"]]
    if before and (not whole or (whole == [True] and "--quick" not in before[0]["command"])):
        content, results = before
        content["verdicts"] = store.verdicts(experiment, results)
        quick = "--quick" in content["command"]
    elif found:
        quick = (whole or [*found])[0]
        results = found[quick]
        content = store.gathered(experiment, results, folder, quick)
    else:
        return None
    svg = to_svg(experiment.figure(results))
    return Entry(experiment, results, experiment.verdicts(results), quick, content, svg)


def write_report(experiments: list[Experiment], folder: Path, out: Path) -> list[Entry]:
    """`lab.md` and `lab.html`, and in `lab/` the figures and the numbers."""
    documents = {experiment.name: out / "lab" / f"{experiment.name}.json" for experiment in experiments}
    entries = [found for one in experiments if (found := entry(one, folder, documents[one.name])) is not None]
    if not entries:
        raise InputError(f"no results in {folder}; run some experiments first, for example: clearhead lab run scaling")
    (out / "lab").mkdir(parents=True, exist_ok=True)
    for one in entries:
        name = one.experiment.name
        write_whole(out / "lab" / f"{name}.svg", one.svg)
        store.write_json(out / "lab" / f"{name}.json", one.content)
    words = {one.experiment.name: [verdict.word for verdict in one.verdicts] for one in entries if not one.quick}
    store.write_json(out / "lab" / store.WORDS, words)
    shown = {one.experiment.name for one in entries}
    missing = ", ".join(experiment.name for experiment in experiments if experiment.name not in shown)
    introduction = INTRODUCTION + standing(entries) + (f" Not measured yet: {missing}." if missing else "")
    write_whole(out / "lab.md", markdown(entries, introduction))
    write_whole(out / "lab.html", page(entries, introduction))
    return entries


def standing(entries: list[Entry]) -> str:
    """A sentence on what was measured before its rules were written, for as long as there is such a thing."""
    earlier = [one.experiment.name for one in entries if one.results.earlier]
    if not earlier:
        return ""
    some = "All" if len(earlier) == len(entries) else f"{len(earlier)} of {len(entries)} experiments"
    return (
        f" {some} still show numbers with seeds from {EARLIER_SEED} on, which were known when the rules by statement "
        "were written; each of them says so, and will be measured anew."
    )


def caution(one: Entry) -> str:
    """Of numbers that are older than their rules: that they are, and which sizes the experiment has had since."""
    if not one.results.earlier:
        return ""
    now, then = store.settled(one.experiment.sizes(one.quick)), store.settled(one.results.sizes)
    text = f"Measured before these rules were written (seeds {one.results.seed_range})."
    if now != then:
        changed = {key: value for key, value in now.items() if then.get(key) != value}
        text += f" The experiment has another form now, not measured yet: {in_words(changed)}."
    return text


def numbers_table(one: Entry) -> list[list[str]]:
    """A heading row, then a row for each arm."""
    columns = one.experiment.columns
    found = [[arm, *(str(one.results.interval(arm, name)) for name in columns)] for arm in one.experiment.arms]
    return [["arm", *columns.values()], *found]


def in_words(sizes: Sizes) -> str:
    """Sizes as `steps 200, d_k 8 32 128`."""
    words = []
    for name, value in sizes.items():
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        words.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(words)


def spoken(verdict: Verdict) -> str:
    """The verdict as a sentence: its word, then its reasons."""
    word, sentence = verdict
    if word == "holds only if":
        return f"**{word}** {sentence}."
    return f"**{word}.** {sentence[:1].upper()}{sentence[1:]}."


def warned(one: Entry) -> str:
    """A sentence for quick results whose verdicts are not those of the full set."""
    differ = disagreements(one.experiment, one.verdicts) if one.quick else []
    return f" Measured at the quick size; at full size {'; '.join(differ)}." if differ else ""


def disagreements(experiment: Experiment, verdicts: list[Verdict]) -> list[str]:
    """Parts of a claim that the full set judges otherwise, each in a few words."""
    full = store.published().get(experiment.name, [])
    if len(full) != len(verdicts):
        return []
    pairs = zip(experiment.parts, verdicts, full, strict=True)
    return [f"“{part.claim}” {word}" for part, verdict, word in pairs if verdict.word != word]


def source_link(one: Entry) -> str:
    return f"clearhead/lab/experiments/{one.experiment.name.replace('-', '_')}.py"


def markdown(entries: list[Entry], introduction: str) -> str:
    parts = [
        "# The lab",
        introduction,
        "This page is written by `clearhead lab report --out docs`; the numbers behind each figure are in "
        "[lab/](lab/). [How to add an experiment](adding-an-experiment.md).",
        table([["experiment", "statement", "verdict", "seeds"], *summary(entries)]),
    ]
    for one in entries:
        experiment = one.experiment
        said = zip(experiment.parts, one.verdicts, strict=True)
        before = [f"*{caution(one)}*"] if caution(one) else []
        parts += [
            f"## {experiment.name}",
            f"**Claim.** {experiment.claim}{warned(one)}",
            *before,
            "\n".join(f"- *{part.claim}* {spoken(verdict)}" for part, verdict in said),
            f"**Why.** {experiment.why}",
            f"**{experiment.headline(one.results)}**",
            f"![{experiment.measured}](lab/{experiment.name}.svg)",
            table(numbers_table(one)),
            "**Arms.** " + "; ".join(f"*{arm}*: {what}" for arm, what in experiment.arms.items()) + ".",
            f"**Measured.** {experiment.measured}",
            "**Rules.**\n\n" + "\n".join(f"- *{part.claim}* {part.rule}" for part in experiment.parts),
            f"`{one.content['command']}` ({in_words(one.results.sizes)}), {one.content['seconds'] / 60:.1f} minutes of "
            f"measuring, summed over arms and seeds {one.results.seed_range}: {one.content['machine']}. "
            f"[Code](../{source_link(one)}), [numbers](lab/{experiment.name}.json).",
        ]
    return "\n\n".join(parts) + "\n"


def summary(entries: list[Entry]) -> list[list[str]]:
    """A row for each statement of each claim; the experiment's name stands before its first."""
    rows = []
    for one in entries:
        name = f"[{one.experiment.name}](#{one.experiment.name})"
        for part, verdict in zip(one.experiment.parts, one.verdicts, strict=True):
            rows.append([name, part.claim, f"*{verdict.word}*", one.results.seed_range])
            name = ""
    return rows


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
        f"<td>{html.escape(part.claim)}</td><td>{verdict.word}</td></tr>"
        for one in entries
        for part, verdict in zip(one.experiment.parts, one.verdicts, strict=True)
    )
    body = "".join(map(section, entries))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Clearhead: the lab</title>'
        f"<style>{CSS}</style></head><body><h1>The "
        f"lab</h1><p>{html.escape(introduction)}</p><table><tr><th></th><th>statement</th><th>verdict</th></tr>{rows}</table>{body}</body></html>\n"
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
    judged = "".join(
        f"<li><i>{html.escape(part.claim)}</i> {emphasised(spoken(verdict))}</li>"
        for part, verdict in zip(experiment.parts, one.verdicts, strict=True)
    )
    rules = "".join(f"<li><i>{html.escape(part.claim)}</i> {html.escape(part.rule)}</li>" for part in experiment.parts)
    return (
        f'<h2 id="{experiment.name}">{experiment.name}</h2>'
        f"<p><b>Claim.</b> {html.escape(experiment.claim + warned(one))}</p><ul>{judged}</ul>"
        f"{f'<p><i>{html.escape(caution(one))}</i></p>' if caution(one) else ''}"
        f"<p><b>Why.</b> {html.escape(experiment.why)}</p>"
        f"<p><b>{html.escape(experiment.headline(one.results))}</b></p>{svg}"
        f"<table><tr>{''.join(f'<th>{html.escape(cell)}</th>' for cell in heading)}</tr>{cells}</table><p><b>Arms.</b> "
        f"{arms}.</p><p><b>Measured.</b> {html.escape(experiment.measured)}</p><p><b>Rules.</b></p><ul>{rules}</ul>"
        f'<p class="small"><code>{one.content["command"]}</code> ({html.escape(in_words(one.results.sizes))}), '
        f"{one.content['seconds'] / 60:.1f} minutes of measuring, summed over arms and seeds {one.results.seed_range}: "
        f"{html.escape(one.content['machine'])}.</p>"
    )


def emphasised(text: str) -> str:
    """Markdown's bold word as HTML."""
    return re.sub(r"\*\*(.+?)\*\*", r'<b class="verdict">\1</b>', html.escape(text))
