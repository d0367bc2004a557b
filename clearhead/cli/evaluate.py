"""`clearhead evaluate`: how good a run is, on its own test data or on files."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.filter import read_lines
from clearhead.cli.options import Checkpoint, Device, RunFolder, Settings, Threads, chosen_settings
from clearhead.errors import InputError

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
    """Translations: BLEU, chrF and TER by sacreBLEU, with signatures. Tasks: exact match and token accuracy.
    Language models: perplexity per token and bits per byte.

    Without files, the test data of the run's recipe is used, or its validation data where there is none.

    \b
    Examples:
      clearhead evaluate runs/demo
      clearhead evaluate runs/multi30k --source test.en --reference test.de --set beam_size=8
      clearhead evaluate runs/multi30k --source test.en --reference test.de --baseline runs/old
      clearhead evaluate runs/shakespeare --text play.txt --json
    """
    from clearhead.decoding.load import load

    if (source is None) != (reference is None):
        raise InputError("evaluate wants --source and --reference together")
    model = load(run, checkpoint, device, threads)
    changes = chosen_settings(set_)
    if source is not None and reference is not None:
        model.require("encoder-decoder", "translate")
        pairs = read_lines(source)[:limit], read_lines(reference)[:limit]
        results = {str(source): translations(model, *pairs, changes, baseline, checkpoint)}
    elif text is not None:
        from clearhead.data.text import read_text
        from clearhead.decoding.evaluation import text_scores

        found = read_text(str(text), "blank-line" if model.documents else "none", strict=False)
        results = {str(text): dict(text_scores(model, found.documents[:limit], model.window()))}
    else:
        results = own_data(model, run, changes, baseline, checkpoint, limit)
    if as_json:
        print(json.dumps({"run": str(run), "checkpoint": checkpoint, "results": results}, ensure_ascii=False))
    else:
        show(results)


def translations(
    model: "LoadedModel",
    sources: list[str],
    references: list[str],
    changes: dict[str, Any],
    baseline: str | None,
    checkpoint: str,
) -> dict[str, Any]:
    """Corpus scores of our translations, against a baseline if there is one."""
    from clearhead.decoding.evaluation import check_lengths, compare, corpus_scores
    from clearhead.decoding.load import load

    check_lengths(sources, references)
    outputs = [one.text for one in model.translate(sources, **changes)]
    if baseline is None:
        return corpus_scores(outputs, references)
    if Path(baseline).is_dir():
        other = [one.text for one in load(baseline, checkpoint).translate(sources, **changes)]
    else:
        other = read_lines(Path(baseline))
    return compare(outputs, other, references)


def own_data(
    model: "LoadedModel",
    run: Path,
    changes: dict[str, Any],
    baseline: str | None,
    checkpoint: str,
    limit: int | None,
) -> dict[str, Any]:
    """The held-out parts of the run's own data, each by name."""
    from clearhead.data.settings import DataSettings
    from clearhead.data.splits import build
    from clearhead.data.text import read_parts
    from clearhead.decoding.evaluation import answers, label_scores, text_scores
    from clearhead.run import Run
    from clearhead.settings import from_dict

    settings = from_dict(DataSettings, Run(run).settings.get("data", {}), "data.")
    kind = model.model.config.kind
    if kind == "decoder":
        _, validation, test = read_parts(settings)
        part = test or validation
        name = "test" if test else "validation"
        return {name: dict(text_scores(model, part.documents[:limit], model.window()))}
    splits = build(settings, model.tokenizer)
    parts = {"test": splits.test} if splits.test else {"validation": splits.validation}
    results: dict[str, Any] = {}
    for name, data in {**parts, **splits.extra}.items():
        assert data is not None
        if kind == "encoder":
            results[name] = label_scores(model, data)
            continue
        examples = data.examples(limit)
        sources, references = [one.source for one in examples], [one.target for one in examples]
        if settings.task is None:
            results[name] = translations(model, sources, references, changes, baseline, checkpoint)
        else:
            made = [one.tokens for one in model.translate(sources, **changes)]
            results[name] = answers(made, [model.tokenizer.encode_ordinary(text) for text in references])
    return results


def show(results: dict[str, Any]) -> None:
    """A table for people: a row for each measure."""
    from clearhead.cli.tables import plain_table, screen

    console = screen()
    for name, scores in results.items():
        table = plain_table(name, "")
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
