"""`clearhead train`: from a recipe to a model in a run folder; the same command again goes on where it stopped."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli import completion
from clearhead.cli.options import RecipeSettings, left_as_it_was, refuse_a_file

if TYPE_CHECKING:
    from clearhead.data.splits import Splits
    from clearhead.training.loop import Callback, Loop
    from clearhead.training.report import Log


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="The name of a packaged recipe, the path of a TOML file, or a run to train on from.",
            autocompletion=completion.recipes,
        ),
    ],
    run: Annotated[
        Path | None,
        # two names, because torchrun takes any --run for a misspelt option of its own
        typer.Option(
            "--run",
            "--into",
            metavar="DIR",
            help="The run folder, runs/RECIPE by default; a run already in it goes on.",
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="RUN", help="Begin with the weights of this run, as far as they fit."),
    ] = None,
    set_: RecipeSettings = None,
    dump_config: Annotated[
        bool, typer.Option("--dump-config", help="Print the recipe with all defaults filled in, and do nothing else.")
    ] = False,
) -> None:
    """Train a model by a recipe. Run the same command again to resume.

    Recipes that come along: copy, reverse, sort, count, dates, languages, masked, multi30k, shakespeare, stdlib. Any
    key of a recipe can be set from here; --dump-config prints them all. With --from, training begins with the weights
    of another run (trained or imported): what fits is taken over, what does not is named, another vocabulary is
    matched token by token.

    \b
    Examples:
      clearhead train copy                                 # into runs/copy
      clearhead train sort --set training.steps=500        # any key can be set
      clearhead train my.toml --run runs/mine              # a recipe of your own
      clearhead train multi30k --dump-config > my.toml     # one made from another
      clearhead train runs/gpt2 --set data.text=mine.txt   # from an import
      clearhead train mine.toml --from runs/minilm         # fine-tune
      torchrun --nproc-per-node 2 -m clearhead train copy --into runs/two
    """
    Path.cwd()  # refused where it is gone; some machines' matrix library would end the process instead
    from clearhead.decoding.judge import judge
    from clearhead.training.config import load_recipe

    loaded = load_recipe(recipe, set_ or ())
    if dump_config:
        import tomli_w

        typer.echo(tomli_w.dumps(loaded.to_dict()), nl=False)
        return
    from clearhead.training.session import train

    folder = default_folder(recipe) if run is None else run
    refuse_a_file(folder, "--run")
    with left_as_it_was(folder):
        outcome = train(loaded, folder, attach=show_samples, start=from_, judge=judge)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


def default_folder(recipe: str) -> Path:
    """Of a recipe, runs/NAME; a run goes on where it is."""
    from clearhead.training.config import CONFIG, find_recipe

    found = find_recipe(recipe)
    return found.parent if found.name == CONFIG else Path("runs") / Path(recipe).stem


def show_samples(splits: "Splits", log: "Log") -> "Sequence[Callback]":
    """Callbacks that show, at each validation, what the model makes of a few validation examples."""
    from clearhead.data.labelled import Labelled
    from clearhead.decoding.classify import Classifier
    from clearhead.decoding.load import LoadedModel
    from clearhead.model import DecoderOnly, EncoderDecoder

    def show(loop: "Loop") -> None:
        wanted, model = loop.settings.samples, loop.model
        sharded = loop.ranks.count > 1 and loop.ranks.parallel == "fsdp"  # then no rank has the whole model
        if not loop.update.validation or not wanted or sharded:
            return
        place, source = loop.ranks.device.type, splits.source_tokenizer
        apart = getattr(splits.validation, "apart", True)  # in one stream, no <s> was ever seen
        documents = "file" if apart else "none"
        loaded = LoadedModel(model, splits.tokenizer, documents=documents, device=place, source_tokenizer=source)
        if isinstance(model, EncoderDecoder):
            examples = splits.validation.examples(wanted)
            answers = loaded.translate([example.source for example in examples], beam_size=1)
            for example, answer in zip(examples, answers, strict=True):
                right = "" if answer.text == example.target else f"   (wanted {shorten(example.target)})"
                log(f"    {shorten(example.source)}  →  {shorten(answer.text)}{right}")
        elif isinstance(splits.validation, Labelled):
            data = splits.validation
            labelled = {"labelled": data.files, "labels": data.labels, "max_length": data.max_length}
            labels = Classifier(model, splits.tokenizer, device=place, labelled=labelled).predict(
                [text if second is None else (text, second) for text, second in data.texts(wanted)]
            )
            for example, said in zip(data.examples(wanted), labels, strict=True):
                right = "" if said.label == example.target else f"   (wanted {example.target})"
                log(f"    {shorten(example.source)}  →  {said.label} {said.probability:.0%}{right}")
        elif isinstance(model, DecoderOnly):
            prompt = splits.validation.examples(1)[0].source[:20]
            log(f"    {shorten(prompt)}  →  {shorten(loaded.generate(prompt, max_tokens=100)[0].text)}")

    return [show]


def shorten(text: str, most: int = 100) -> str:
    """One line, and not too long a one."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
