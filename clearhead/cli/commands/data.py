"""`clearhead data`: prepare the data of a recipe ahead of time, and look at what the model will see."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import completion
from clearhead.cli.options import AsJson, RecipeSettings
from clearhead.cli.usage import STYLE
from clearhead.errors import visible

if TYPE_CHECKING:
    from clearhead.data.batch import Dataset
    from clearhead.data.splits import Splits

app = typer.Typer(name="data", help="Prepare the data of a recipe, and look at them.", **STYLE)

Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A packaged recipe, a TOML file, or a run.", autocompletion=completion.recipes
    ),
]
Verify = Annotated[bool, typer.Option("--verify", help="Read every file again and compare its SHA-256.")]


@app.command()
def prepare(recipe: Recipe, set_: RecipeSettings = None, verify: Verify = False) -> None:
    """Turn the text of a recipe into ids, once, so that training begins at once.

    What is made lies in the cache ($CLEARHEAD_CACHE, or ~/.cache/clearhead), under a sum of all it was made of: the
    files, the tokenizer, the settings. A preparation that was interrupted goes on where it was. Files are known by size
    and time; --verify reads them, and what was made of them, again.

    \b
    Examples:
      clearhead data prepare mine.toml
      clearhead data prepare multi30k --set tokenizer.vocab_size=8000
      clearhead data prepare mine.toml --verify
    """
    began = time.perf_counter()
    splits = built(recipe, set_, verify)
    for name, part in parts_of(splits).items():
        typer.echo(f"{name}: {len(part):,} examples")
    for name, skipped in splits.skipped():
        typer.echo(visible(f"{name}: {skipped}"))
    typer.echo(f"{splits.tokenizer.size:,} tokens in the vocabulary; {time.perf_counter() - began:.1f} s", err=True)


@app.command()
def look(
    recipe: Recipe,
    set_: RecipeSettings = None,
    examples: Annotated[int, typer.Option(min=0, metavar="N", help="How many examples to show.")] = 2,
    as_json: AsJson = False,
) -> None:
    """Show examples as the model sees them, and what is odd about the data.

    Ids, pieces, masks and labels of the first examples; then of each part lengths, ratios, duplicates, odd characters,
    unknown tokens, labels, and what was skipped and why.

    \b
    Examples:
      clearhead data look multi30k
      clearhead data look mine.toml --examples 5
      clearhead data look mine.toml --json
    """
    from clearhead.data.look import look, shown

    splits = built(recipe, set_, False)
    parts = parts_of(splits)
    if as_json:
        for name, part in parts.items():
            train = None if part is splits.train else splits.train
            print(json.dumps({"part": name, **asdict(look(part, train))}, ensure_ascii=False))
        return
    for index in range(min(examples, len(splits.train))):
        typer.echo(visible(f"example {index}: {splits.train.name(index)}"))
        for name, row in shown(splits.train, index):
            typer.echo(visible(f"  {name:14} {cut(' '.join(row))}"))
    for name, part in parts.items():
        describe(name, part, None if part is splits.train else splits.train)


def built(recipe: str, changes: list[str] | None, verify: bool) -> "Splits":
    """The data of a recipe, as training would read them; of a run, with its tokenizers."""
    from clearhead.data.splits import build
    from clearhead.run import CONFIG, TOKENIZER, Run
    from clearhead.training.config import find_recipe, load_recipe

    loaded = load_recipe(recipe, changes or ())
    found = find_recipe(recipe)
    run = Run(found.parent) if found.name == CONFIG and (found.parent / TOKENIZER).is_file() else None
    own = (None, None) if run is None else (run.tokenizer(), run.source_tokenizer())
    tell = lambda line: typer.echo(visible(line), err=True)  # noqa: E731
    return build(loaded.data, own[0], loaded.tokenizer, own[1], tell, verify)


def parts_of(splits: "Splits") -> "dict[str, Dataset]":
    first = {"train": splits.train, "validation": splits.validation}
    more = {f"validation {name}": part for name, part in splits.more.items()}
    tests = {**({"test": splits.test} if splits.test else {}), **splits.extra}
    return {**first, **more, **tests}


def cut(line: str, most: int = 160) -> str:
    return line if len(line) <= most else line[: most - 1] + "…"


def describe(name: str, part: "Dataset", train: "Dataset | None") -> None:
    from clearhead.data.look import QUANTILES, look

    found = look(part, train)
    sample = "" if found.looked_at == found.examples else f" ({found.looked_at:,} looked at)"
    of = "" if found.documents is None else f" of {found.documents:,} document" + "s" * (found.documents > 1)
    lines = [f"{name}: {found.examples:,} {'examples' if found.documents is None else 'windows'}{of}{sample}"]
    heads = ["shortest", *(f"{100 * one:g}%" for one in QUANTILES[1:-1]), "longest"]
    rows: list[tuple[str, Sequence[float]]] = [
        (f"{what} tokens", values) for what, values in found.lengths.items() if values
    ]
    if found.ratios is not None:
        rows.append(("source/target", found.ratios))
    if rows:
        lines.append(f"  {'':18}" + "".join(f"{head:>10}" for head in heads))
        lines += [f"  {what:18}" + "".join(f"{value:>10,}" for value in values) for what, values in rows]
    if found.together is not None:
        lines.append(f"  lengths of source and target go together: {found.together}")
    for what, count in found.counts.items():
        lines.append(f"  {what}: {count:,}" + (f" (first: {found.first[what]})" if count else ""))
    if found.unknown:
        lines.append(f"  unknown tokens: {found.unknown:,} of {found.tokens:,}")
    for character, count in list(found.odd.items())[:10]:
        lines.append(f"  odd: {character}, in {count:,} examples")
    if found.labels:
        lines.append("  labels: " + cut(", ".join(f"{label} {count:,}" for label, count in found.labels.items())))
    lines += [f"  {line}" for line in found.skipped]
    for line in lines:
        typer.echo(visible(line))
