"""What users get wrong: every option and argument of every command, every setting, and the world around a command.

All of it is made from the command tree and the tables of settings, so that whatever is added is tried. A mistake must
end in status 2 with one line that names what is wrong, no traceback, no signal, no hang, and nothing changed on the
disk. What is no mistake must work; which is which, the rules in `mistakes_of_options` say, not the program.
"""

import dataclasses
import importlib
import pkgutil
import random
import typing
from collections.abc import Iterator
from functools import partial
from typing import Any

import typer

import clearhead
from bench.faults.command_child import UNCAUGHT, Ended, Surroundings, call, nobody
from bench.faults.mistakes_of_options import HUGE, Command, Mistake
from bench.faults.mistakes_of_surroundings import surroundings
from bench.faults.outcome import Trial
from bench.faults.sandbox import DATA_KEYS, Sandbox, sandbox
from clearhead.cli.main import app
from clearhead.data.settings import DataSettings, TokenizerSettings
from clearhead.decoding_settings import DecodingSettings
from clearhead.model.config import Dropout, Embedding, Head, ModelConfig, Norm, Positions
from clearhead.training.config import TrainingSettings

SAMPLE = 20  # of the mistakes in words, in the tests
COURSE = "it works on the learner's folder that it is called in, and tests/learn tries it"
NAMES = ("check", "watch", "hint", "skip", "reset", "solution", "list", "bug", "finish", "grade")
ELSEWHERE = {("learn", name): COURSE for name in NAMES}  # commands that are not tried here, and why
SETTINGS: dict[str, Any] = {
    "training": TrainingSettings,
    "data": DataSettings,
    "tokenizer": TokenizerSettings,
    "decoding": DecodingSettings,
    "model": ModelConfig,
    "model.embedding": Embedding,
    "model.positions": Positions,
    "model.norm": Norm,
    "model.dropout": Dropout,
    "model.head": Head,
}
MAY_BE_NEGATIVE = {"training.seed": "any seed will do", "decoding.length_penalty": "it then favours short output"}


def trials(small: bool) -> Iterator[Trial]:
    """The words first, then the settings, then what surrounds them."""
    with sandbox() as place:
        import_everything(small)
        commands = [Command(path, leaf, place) for path, leaf in leaves(typer.main.get_command(app))]
        mistakes = [
            *(one for command in commands for one in command.mistakes()),
            *contradictions(place),
            *settings_mistakes(place),
            *data_mistakes(place),
        ]
        if not small:  # results for the commands of the lab to work on; what is measured is kept
            measured = next(command for command in commands if command.path == ("lab", "run"))
            call(measured.base(), Surroundings(place.here))
        if small:  # the same ones every time, and only those that end before any work is done
            cheap = [one for one in mistakes if one.refused]
            mistakes = random.Random(13).sample(cheap, SAMPLE)
        for one in mistakes:
            yield Trial(f"mistakes: {family(one)}", told(one, place), partial(attempt, one, place))
        yield from surroundings(commands, place, small)


def import_everything(small: bool) -> None:
    """So that the children need not. The sample loads no run, hence needs less."""
    skipped = ("clearhead.__main__", *(["clearhead.lab", "clearhead.doctor", "clearhead.interop"] if small else []))
    for module in pkgutil.walk_packages(clearhead.__path__, "clearhead.", onerror=lambda name: None):
        if not module.name.startswith(skipped):
            importlib.import_module(module.name)
    if not small:
        for name in ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "sacrebleu.metrics"):
            importlib.import_module(name)
        from clearhead.cost.account import Size, account
        from clearhead.model import configure

        account(configure("tiny"), Size(1, 4))  # torch loads its fake tensors when they are first used


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None and path not in ELSEWHERE:
        yield path, command
    for name, below in (inner or {}).items():
        yield from leaves(below, (*path, name))


def attempt(mistake: Mistake, place: Sandbox) -> str:
    before = place.snapshot()
    where = Surroundings(place.here, before=nobody if mistake.unprivileged else None)
    ended = call(mistake.words, where)
    wrong = judge(mistake, ended)
    if not wrong and mistake.refused and (changed := sorted(set(before.items()) ^ set(place.snapshot().items()))):
        wrong = f"refused, but {changed[0][0]} was made or changed"
    place.clean(before)
    return wrong


def family(mistake: Mistake) -> str:
    if not mistake.refused:
        return "odd words that are fine"
    return "wrong settings" if mistake.kind.startswith("setting") else "wrong words"


def told(mistake: Mistake, place: Sandbox) -> str:
    """Enough to try it again: the words as typed in the sandbox."""
    words = [word if len(word) < 200 else f"{word[:20]}…({len(word)})" for word in mistake.words]
    return f"{mistake.kind}: clearhead {' '.join(map(repr, words))}".replace(str(place.folder), "")


def judge(mistake: Mistake, ended: Ended) -> str:
    """What is wrong with how it ended; nothing if it ended as it must."""
    last = ended.err.strip().splitlines()[-1:] or [""]
    if ended.hung:
        return "does not end"
    if ended.status < 0:
        return f"ended by signal {-ended.status}"
    if ended.status == UNCAUGHT or "Traceback" in ended.err:
        return f"traceback: {last[0][:200]}"
    if not mistake.refused:
        return "" if ended.status == 0 else f"status {ended.status}, though the words are fine: {last[0][:200]}"
    if ended.status != 2:
        return f"status {ended.status} instead of a refusal"
    if len(ended.err.splitlines()) != 1 or not ended.err.startswith("clearhead: error: "):
        return f"not one line of error: {ended.err[:300]!r}"
    if ended.out:
        return f"refused, but wrote {ended.out[:60]!r}"
    if mistake.named and not any(name in ended.err for name in mistake.named):
        return f"names none of {', '.join(mistake.named)[:150]}: {ended.err.strip()[:300]}"
    return ""


def contradictions(place: Sandbox) -> Iterator[Mistake]:
    """Words that are fine one by one and not together; these no tree can tell."""
    path = place.path
    lines = path("lines.txt")
    pairs, text, encoder, labels = path("pairs"), path("text"), path("encoder"), path("labels")
    for words, named in (
        (["average", pairs, "--last", "2", "--best", "2"], "--last 2 and --best 2"),
        (["average", pairs, "--last", "9"], "--last 9"),
        (["generate", text, "the cat", "--prompts", lines], "--prompts"),
        (["translate", pairs, lines, "--beam-size", "2", "--n-best", "3"], "n_best"),
        (["encode", encoder, lines, "--mean", "--predict"], "--predict and --mean"),
        (["encode", encoder, lines, "-o", path("here/x.npy")], "--mean"),
        (["encode", encoder, lines, "--mean", "-o", lines], "--force"),
        (["evaluate", pairs, "--source", lines], "--reference"),
        (["evaluate", pairs, "--reference", lines], "--source"),
        (["evaluate", text, "--text", lines, "--baseline", pairs], "--baseline"),
        (["evaluate", pairs, "--text", lines, "--source", lines, "--reference", lines], "--text"),
        (["evaluate", text, "--source", lines, "--reference", lines], "kind"),
        (["evaluate", pairs, "--text", lines], "kind"),
        (["evaluate", text, "--baseline", pairs], "baseline"),
        (["score", pairs], "--source"),
        (["score", pairs, "--source", lines], "--target"),
        (["score", pairs, "--source", lines, "--target", path("text.txt")], "40"),
        (["score", pairs, "--source", lines, "--target", lines, "--text", lines], "--text"),
        (["score", text, "--source", lines, "--target", lines], "kind"),
        (["translate", text, lines], "kind"),
        (["generate", pairs, "the cat"], "kind"),
        (["encode", pairs, lines], "kind"),
        (["predict", pairs, lines], "labels"),
        (["predict", text, lines], "labels"),
        (["generate", labels, "the cat"], "kind"),
        (["train", path("recipe.toml"), "--run", pairs, "--from", pairs], "--from"),
        (["train", pairs, "--run", path("here/made"), "--from", lines], "lines.txt"),
        (["train", path("recipe.toml"), "--run", path("here/made"), "--set", "data.labelled=" + lines], "data."),
        (["serve", pairs, pairs, "--describe"], "pairs"),
        (["serve", pairs, "--describe", "--address", "0.0.0.0"], "--token-file"),
        (["serve", pairs, "--describe", "--address", "0.0.0.0", "--token-file", path("token.txt")], "--allow-host"),
        (["serve", pairs, "--describe", "--token-file", lines], "--token-file"),
        (["generate", text, "--interactive"], "--interactive"),
        (["attention", text, "the cat", "--target", "the"], "target"),
        (["attention", text, "the cat", "--kind", "cross"], "--kind cross"),
        (["attention", pairs, "the cat", "-o", path("here/x.doc")], "x.doc"),
        (["attention", pairs, "the cat", "-o", lines], "--force"),
        (["translate", pairs, lines, "--device", "cuda:77"], "cuda:77"),
        (["translate", pairs, lines, "--threads", "100000"], "--threads"),
        (["train", path("recipe.toml"), "--run", lines], "--run"),
        (["train", path("recipe.toml"), "--run", path("lines.txt/below")], "--run"),
        (["train", path("recipe.toml"), "--run", pairs], "was begun with"),
        (["train", path("recipe.toml"), "--set", "training.device=cuda"], "cuda"),
        (["train", path("recipe.toml"), "--set", "data.text=" + lines], "data."),
        (["train", path("recipe.toml"), "--set", "model.heads=3"], "heads"),
        (["demo", "--run", lines], "--run"),
        (["demo", "--run", path("here/d"), "--set", "data.task=copy"], "data.task"),
        (["shapes", "tiny", "--set", "heads=3"], "heads"),
        (["shapes", "gpt2", "--length", "5000"], "5000"),
        (["shapes", "tiny", "--attention", "--head", "99"], "head 99"),
        (["shapes", "tiny", "--head", "1"], "--attention"),
        (["shapes", "tiny", "--text", "the cat"], "--attention"),
        (["shapes", "tiny", "--attention", "--text", ""], "text"),
        (["profile", "tiny", "--batch", "1000000", "--length", "100000", "--rounds", "1"], "memory"),
        (["tokenizer", "train", path("text.txt"), "--vocab-size", "5", "-o", path("here/t.json")], "5"),
        (["tokenizer", "train", path("text.txt"), "--vocab-size", "270", "-o", path("tokenizer.json")], "--force"),
        (["tokenizer", "train", path("empty.txt"), "--vocab-size", "270", "-o", path("here/t.json")], "27"),
        (["tokenizer", "explain", "the cat", "-t", path("pairs")], "byte-pair"),
        (["tokenizer", "convert", path("tokenizer.json"), path("here/t.doc")], "t.doc"),
        (["tokenizer", "convert", path("tokenizer.json"), path("tokenizer.json")], "--force"),
        (["nonsense"], "nonsense"),
        (["lab", "nonsense"], "nonsense"),
        (["tokenizer", "nonsense"], "nonsense"),
        (["--nonsense"], "--nonsense"),
        (["plot", pairs, text], "argument"),
    ):
        yield Mistake(words, True, (named,), "contradiction")


def settings_mistakes(place: Sandbox) -> Iterator[Mistake]:
    """Every key of every table with values of other types and outside any range."""
    start = ["train", place.path("recipe.toml"), "--run", place.path("here/made"), "--set"]
    for table, settings in SETTINGS.items():
        hints = typing.get_type_hints(settings)
        yield Mistake([*start, f"{table}.nonsense=1"], True, ("nonsense",), "setting: unknown")
        for field in dataclasses.fields(settings):
            if not field.init or dataclasses.is_dataclass(hints[field.name]):
                continue
            name = f"{table}.{field.name}"
            for value in wrong_values(name, hints[field.name]):
                yield Mistake([*start, f"{name}={value}"], True, (field.name,), f"setting: {value[:9]}")


def data_mistakes(place: Sandbox) -> Iterator[Mistake]:
    """What is no data: for every kind of files, of training and held out."""
    path = place.path
    for key in DATA_KEYS:
        good = path("text.txt" if key == "text" else "labels.tsv")
        start = ["data", "look", path(f"{key}.toml"), "--set"]
        for bad in (path("missing"), path("folder"), path("pipe"), "/dev/zero", path("empty.txt"), path("garbage.bin")):
            yield Mistake([*start, f"data.{key}={bad}"], True, (bad,), "setting: no data")
            held_out = f"data.validation_{key}={bad}"
            yield Mistake([*start, f"data.{key}={good}", "--set", held_out], True, (bad,), "setting: no data")


def wrong_values(name: str, hint: Any) -> Iterator[str]:
    """A table for anything; for numbers also what is none, or negative, or more than can be counted."""
    kinds = {part for part in (hint, *typing.get_args(hint)) if isinstance(part, type)}
    yield "{ a = 1 }"
    if int in kinds or float in kinds:
        yield from ("abc", "true", "nan", "inf", "-inf", "[1]")
        if float not in kinds:
            yield str(HUGE)
        if name not in MAY_BE_NEGATIVE:
            yield "-1"
    elif bool in kinds:
        yield from ("1", "maybe")
    elif typing.get_origin(hint) is typing.Literal or any(typing.get_origin(part) for part in typing.get_args(hint)):
        yield from ("nonsense", "1")
    else:
        yield "1"
