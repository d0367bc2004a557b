"""`clearhead predict`: the label of each line, by a run that was trained on labels."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.filter import Filter
from clearhead.cli.options import AsJson, Checkpoint, Device, InputFile, RunFolder, Threads
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.decoding.classify import Classifier
    from clearhead.decoding.results import Prediction

Texts = tuple[str, str | None]


def predict(
    run: RunFolder,
    file: InputFile = None,
    top: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, metavar="K", help="The K likeliest labels with their probabilities."),
    ] = None,
    as_json: AsJson = False,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """The label of each line: one line in is one line out, and an empty line stays empty.

    Where the run was trained on two texts at a time, a line has both, with a tab between them. With --top 3, a line
    has label, probability, label, probability, … in columns; with --json, the probability of every label.

    \b
    Examples:
      echo "3 mars 2029" | clearhead predict runs/languages
      clearhead predict runs/languages dates.txt --top 3
      clearhead predict runs/mine lines.txt --json
    """
    from clearhead.decoding.classify import load_classifier

    classifier = load_classifier(run, checkpoint, device, threads)
    lines = Filter(file)
    for chunk in lines:
        usable = {number: texts for number, line in chunk if (texts := read(classifier, lines, number, line))}
        pairs = [first if second is None else (first, second) for first, second in usable.values()]
        found = dict(zip(usable, classifier.predict(pairs), strict=True))
        if as_json:
            lines.write([describe(classifier, number, text, found.get(number)) for number, text in chunk])
        else:
            lines.write([columns(classifier, found.get(number), top) for number, _ in chunk])


def read(classifier: "Classifier", lines: Filter, number: int, line: str) -> Texts | None:
    """The text or texts of a line; None if there is none, or one that cannot be read."""
    if not line.strip():
        return None
    text, second = line.strip(), None
    if classifier.pairs and "\t" in line:
        text, _, second = (part.strip() for part in line.partition("\t"))
    try:
        cut = classifier.ids(text, second)[2]
    except InputError as error:
        lines.warn(number, "could not be read and gave an empty line", str(error))
        return None
    if cut:
        lines.warn(number, f"longer than {classifier.max_length} tokens: the rest was left out")
    return text, second


def ranked(classifier: "Classifier", found: "Prediction") -> list[tuple[str, float]]:
    """Every label with its probability, the likeliest first."""
    return sorted(zip(classifier.labels, found.probabilities, strict=True), key=lambda pair: -pair[1])


def columns(classifier: "Classifier", found: "Prediction | None", top: int | None) -> str:
    if found is None:
        return ""
    if top is None:
        return found.label
    best = ranked(classifier, found)[:top]
    return "\t".join(f"{label}\t{probability:.4f}" for label, probability in best)


def describe(classifier: "Classifier", number: int, text: str, found: "Prediction | None") -> str:
    """One line of JSON. A line without a text has an empty label and nothing else."""
    data: dict[str, object] = {"line": number, "text": text, "label": "" if found is None else found.label}
    if found is not None:
        data |= {"probability": found.probability, "probabilities": dict(ranked(classifier, found))}
    return json.dumps(data, ensure_ascii=False)
