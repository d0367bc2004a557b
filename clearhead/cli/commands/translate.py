"""`clearhead translate`: a filter from source lines to target lines."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.filter import Filter
from clearhead.cli.options import (
    AsJson,
    Checkpoint,
    Device,
    InputFile,
    Precision,
    RunFolder,
    Settings,
    Threads,
    chosen_settings,
    finite,
)
from clearhead.decoding_settings import MOST
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel
    from clearhead.decoding.results import Translation


def translate(
    run: RunFolder,
    file: InputFile = None,
    beam_size: Annotated[
        int | None,
        typer.Option(min=1, max=MOST["beam_size"], metavar="K", help="Hypotheses kept at each step; 1: greedy."),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(metavar="A", min=-100, max=100, callback=finite, help="Higher favours longer output."),
    ] = None,
    n_best: Annotated[
        int,
        typer.Option(
            min=1, max=MOST["beam_size"], metavar="N", help="Translations of each line, in columns of one line."
        ),
    ] = 1,
    prefix: Annotated[str | None, typer.Option(help="How every translation must begin.")] = None,
    set_: Settings = None,
    as_json: AsJson = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
    precision: Precision = "float32",
) -> None:
    """Translate line by line: one line in is one line out, and an empty line stays empty. In a terminal, without a
    file, it is a prompt with history, and with --beam-size 1 the answer appears as it is written.

    Settings not given are those of the run; --set changes any of its table `decoding`. With --json each line has the
    text, its score (what beam search ranked it by), the log-probability of every token, the next best translations
    and the alignment: for each target token the source token it looks at most, by the averaged heads of the
    cross-attention layer that is most certain about this sentence.

    \b
    Examples:
      echo "Samstag, 3. März 2029" | clearhead translate runs/demo
      clearhead translate runs/multi30k test.en > test.de
      clearhead translate runs/multi30k test.en --beam-size 8 --n-best 3 --json
      clearhead translate runs/multi30k test.en --beam-size 1   # greedy: fastest
      clearhead translate runs/multi30k test.en --set no_repeat_ngram=3
    """
    from clearhead.cli.interactive import at_a_terminal, converse
    from clearhead.decoding.load import load
    from clearhead.decoding.streaming import stream_translation

    model = load(run, checkpoint, device, threads, precision)  # type: ignore[arg-type]  # load checks it
    model.model_of_kind("encoder-decoder", "translate")
    changes = {**chosen_settings(set_), "length_penalty": length_penalty}
    if beam_size is not None:
        changes["beam_size"] = beam_size
    changes.setdefault("beam_size", max(n_best, model.settings.beam_size))
    if file is None and not as_json and n_best == 1 and prefix is None and at_a_terminal():
        converse(lambda line, number: stream_translation(model, line, **changes))
        return
    begin = None if prefix is None else model.tokenizer.encode_ordinary(prefix)
    lines = Filter(file)
    for chunk in lines:
        sources = {number: ids for number, text in chunk if (ids := read(model, lines, number, text)) is not None}
        prefixes = None if begin is None else [begin] * len(sources)
        made = model.translate_ids(
            list(sources.values()), n_best=n_best, prefixes=prefixes, alignment=as_json, **changes
        )
        by_number = dict(zip(sources, made, strict=True))
        for number, found in by_number.items():
            if not found.finished:
                lines.warn(number, "cut off at the greatest length")
        if as_json:
            lines.write([describe(model, number, text, by_number.get(number)) for number, text in chunk])
        else:
            lines.write([columns(by_number.get(number)) for number, _ in chunk])


def read(model: "LoadedModel", lines: Filter, number: int, text: str) -> list[int] | None:
    """The ids of a line; None if there is nothing in it, or nothing that the tokenizer knows."""
    if not text.strip():
        return None
    try:
        ids, cut = model.source(text, number)
    except InputError as error:
        said = str(error).removeprefix(f"line {number}: ")
        lines.warn(number, "could not be read and gave an empty line", said)
        return None
    if cut:
        lines.warn(number, f"longer than {model.settings.max_source} tokens: the rest was left out")
    return ids


def columns(found: "Translation | None") -> str:
    if found is None:
        return ""
    return "\t".join(one.text.replace("\t", " ") for one in (found, *found.others)) if found.others else found.text


def describe(model: "LoadedModel", number: int, text: str, found: "Translation | None") -> str:
    """One line of JSON. A line without a translation has an empty text and nothing else."""
    data: dict[str, Any] = {"line": number, "source": text, "text": "" if found is None else found.text}
    if found is not None:
        data |= one(model, found)
        data["n_best"] = [one(model, other) for other in (found, *found.others)]
        source, _ = model.source(text)
        data["source_tokens"] = [model.source_tokenizer.decode([token]) for token in source]
        assert found.alignment is not None
        links = [[link.target, link.source, round(link.weight, 4)] for link in found.alignment.links]
        data["alignment"] = {
            "layer": found.alignment.layer,
            "heads": "mean",
            "columns": ["target", "source", "weight"],
            "links": links,
        }
    return json.dumps(data, ensure_ascii=False)


def one(model: "LoadedModel", found: "Translation") -> dict[str, Any]:
    data = asdict(found)
    return {
        "text": found.text,
        "score": found.score,
        "log_prob": found.log_prob,
        "finished": found.finished,
        "tokens": [model.tokenizer.decode([token]) for token in data["tokens"]],
        "log_probs": data["log_probs"],
    }
