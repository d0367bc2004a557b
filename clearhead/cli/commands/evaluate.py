"""`clearhead evaluate`: how good a run is, on its own test data or on files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.options import Checkpoint, Device, RunFolder, Settings, Threads, chosen_settings
from clearhead.data.files import read_lines
from clearhead.errors import InputError, visible

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel


def evaluate(
    run: RunFolder,
    source: Annotated[Path | None, typer.Option(metavar="F", help="Source lines to translate.")] = None,
    reference: Annotated[Path | None, typer.Option(metavar="F", help="What they should become.")] = None,
    text: Annotated[Path | None, typer.Option(metavar="F", help="For a language model: a text.")] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="RUN|F", help="Another run, or its output: is the difference significant?")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N examples or lines.")] = None,
    set_: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translations: BLEU, chrF and TER by sacreBLEU, with signatures. Tasks: exact match and tokens in place.
    Language models: perplexity per token and bits per byte.

    Without files, the test data of the run's recipe is used, or its validation data where there is none.

    \b
    Examples:
      clearhead evaluate runs/demo
      clearhead evaluate runs/multi30k --set beam_size=8 --limit 100
      clearhead evaluate runs/multi30k --source test.en --reference test.de
      clearhead evaluate runs/multi30k --baseline runs/old
      clearhead evaluate runs/shakespeare --text play.txt --json
    """
    from clearhead.decoding.evaluation import held_out_scores, text_file_scores, translation_scores
    from clearhead.decoding.load import load

    if (source is None) != (reference is None):
        raise InputError("evaluate wants --source and --reference together")
    if text is not None and (source is not None or baseline is not None):
        raise InputError("--text is for language models, --source, --reference and --baseline for translations")
    model = load(run, checkpoint, device, threads)
    changes = chosen_settings(set_)
    other: LoadedModel | list[str] | None = None
    if baseline is not None:
        is_run = Path(baseline).is_dir()
        other = load(baseline, checkpoint, device, threads) if is_run else read_lines(Path(baseline))[:limit]
    if source is not None and reference is not None:
        model.model_of_kind("encoder-decoder", "translate")
        pairs = read_lines(source)[:limit], read_lines(reference)[:limit]
        results = {str(source): translation_scores(model, *pairs, other, **changes)}
    elif text is not None:
        results = {str(text): text_file_scores(model, text, limit)}
    else:
        results = held_out_scores(model, run, limit=limit, baseline=other, **changes)
    if as_json:
        print(json.dumps({"run": str(run), "checkpoint": checkpoint, "results": results}, ensure_ascii=False))
    else:
        show(results)


def show(results: dict[str, Any]) -> None:
    """A table for people: a row for each measure."""
    from rich.markup import escape

    from clearhead.cli.tables import plain_table, screen

    console = screen()
    for name, scores in results.items():
        table = plain_table(escape(visible(name)), "")
        for measure, value in scores.items():
            if not isinstance(value, dict):
                table.add_row(measure, f"{value:,}" if isinstance(value, int) else f"{value:,.4f}")
                continue
            line = f"{value['score']:.2f}"
            if "p" in value:
                line += (
                    f" ± {value['interval']:.2f}   baseline {value['baseline']:.2f} ± {value['baseline_interval']:.2f}"
                )
                line += f"   p = {value['p']:.4f}"
            table.add_row(measure, line)
        console.print(table)
        for value in scores.values():
            if isinstance(value, dict):
                console.print(f"[dim]{value['signature']}[/]", soft_wrap=True)
