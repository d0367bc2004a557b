"""Mistakes with the words of a command, made from the command tree: what is tried with an option or argument follows
from its type, its range and its metavar, so that a new one is covered as soon as it exists.

Whether a value must be refused is decided here, by rules: outside the declared range, of another type, a path that is
not what the metavar promises. A number without a declared range, or a metavar that promises nothing known, is itself
a mistake: ours.
"""

import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from bench.faults.sandbox import Sandbox

HUGE = 10**30
LONG = "a" * 3000


@dataclass(frozen=True)
class Mistake:
    """Words for a command and what must become of them."""

    words: list[str]
    refused: bool  # else the words are fine, and the command must do as it is asked
    named: tuple[str, ...] = ()  # one of these must be in the line of a refusal
    kind: str = ""
    unprivileged: bool = False  # to be tried as a user without rights


@dataclass(frozen=True)
class Role:
    """What a metavar promises: values that must be refused and values that are fine, one of them to begin with."""

    good: str
    bad: dict[str, str] = field(default_factory=dict)  # what is wrong with it -> the value
    fine: tuple[str, ...] = ()


def roles(place: Sandbox) -> dict[str, Role]:
    """By metavar. `secret` is a file that only root may read."""
    path = place.path
    missing, folder, garbage = path("missing"), path("folder"), path("garbage.bin")
    below, long, secret = path("lines.txt/below"), path("n" * 300), path("secret.txt")
    unusable = {"missing": missing, "below a file": below, "too long a name": long, "unreadable": secret}
    text_file = {**unusable, "a folder": folder, "binary": garbage, "a pipe": path("pipe"), "endless": "/dev/zero"}
    no_run = {"missing": missing, "a file": path("lines.txt"), "an empty folder": folder, "too long a name": long}
    output = {"in no folder": path("missing/x"), "below a file": below, "too long a name": long}
    free = ("", "日本語", "\x1b[31m", LONG, "\udcff")
    return {
        "RUN": Role(path("pairs"), no_run),
        "PRESET|RUN": Role("tiny", {**no_run, "unknown": "nonsense"}),
        "RUN|F": Role(path("pairs"), {"missing": missing, "an empty folder": folder, "binary": garbage}),
        "FILE": Role(path("lines.txt"), {**unusable, "a folder": folder}, (garbage, path("empty.txt"))),
        "FILES": Role(path("text.txt"), {**unusable, "a folder": folder}),
        "F": Role(path("lines.txt"), text_file),
        "TOKENIZER": Role(path("tokenizer.json"), {**text_file, "empty": path("empty.txt")}),
        "IN": Role(path("tokenizer.json"), {**text_file, "empty": path("empty.txt")}),
        "OUT": Role(path("here/new.json"), output),
        "OUT.py": Role(path("here/new.py"), {**output, "another kind of file": path("here/new.txt")}),
        "OUT.npy": Role(path("here/new.npy"), {**output, "a folder": folder}),
        "DIR": Role(path("here/made"), {"a file": path("lines.txt"), "below a file": below, "too long a name": long}),
        "RECIPE": Role(path("recipe.toml"), {"unknown": "nonsense", "missing": path("missing.toml"), "a folder": folder,
                                             "binary": garbage, "empty": path("empty.txt")}),
        "NAME": Role("best", {"unknown": "nonsense", "empty": "", "not kept": "step_99", "a path": "../best"}),
        "DEVICE": Role("cpu", {"unknown": "nonsense", "empty": "", "not here": "cuda:77"}),
        "KEY=VALUE": Role("", {"no assignment": "nonsense", "no key": "=1", "unknown key": "nonsense=1", "empty": ""}),
        "TABLE.KEY=VALUE": Role("", {"no assignment": "nonsense", "unknown table": "nonsense.a=1",
                                     "unknown key": "training.nonsense=1", "empty": ""}),
        "NAME=ID": Role("<end>=5", {"no assignment": "nonsense", "no number": "<end>=x", "no name": "=5", "empty": ""}),
        "TARGET": Role("torch.nn:Transformer", {"no name": "torch.nn", "no module": "nonsense:x",
                                                "no such name": "torch.nn:nonsense", "empty": "", "no package": ":x"}),
        "BASELINE": Role(path("baseline.json"), {**text_file, "empty": path("empty.txt")}),
        "NAMES": Role("numerics", {"unknown": "nonsense", "empty": ""}),
        "PROBE": Role("future", {"unknown": "nonsense", "empty": ""}),
        "P": Role("gpt2", {"no pattern": "(", "empty": ""}),
        "T": Role("<end>", {}, ("",)),
        "TEXT": Role("the cat", {}, free),
        "PROMPT": Role("the cat", {}, free),
        "SOURCE": Role(path("foreign"), {**unusable, "an empty folder": folder, "text": path("lines.txt"),
                                         "a pipe": path("pipe"), "endless": "/dev/zero"}),
        "NEW RUN": Role(path("here/made"), {"a file": path("lines.txt"), "there already": path("pairs"),
                                            "below a file": below, "too long a name": long}),
        "F.bin": Role(garbage, {**unusable, "a folder": folder}),
        "FOLDER": Role(path("here/course"), {"a file": path("lines.txt"), "below a file": below,
                                             "too long a name": long}),
        "ADDRESS": Role("127.0.0.1", {"empty": "", "unknown": "nonsense", "not ours": "192.0.2.1"}),
        "HOST": Role("example.org", {"empty": "", "two words": "a b", "an address": "https://example.org"}),
        "ORIGIN": Role("https://example.org", {"empty": "", "no scheme": "example.org", "a page": "https://a.org/b"}),
        "N": Role("1M", {"no number": "many", "empty": "", "none": "0", "less than none": "-1", "nan": "nan",
                         "5,000 digits": "9" * 5000, "beyond all": "1e400", "another unit": "1X"}, ("1e9", "4.5M")),
        "COUNTxDEVICE": Role("2xH100", {"unknown": "nonsense", "empty": "", "none": "0xH100", "no device": "8x",
                                        "beyond all": "9999999xH100"}, ("a100",)),
        "PLAN": Role(path("plan.toml"), {**text_file, "no plan": path("recipe.toml")}),
    }  # fmt: skip


# What stands at the start besides the required words, so that a command is quick and does something.
EXTRA: dict[tuple[str, ...], list[str]] = {
    ("generate",): ["--max-tokens", "3"],
    ("evaluate",): ["--limit", "2"],
    ("score",): ["--source", "{lines.txt}", "--target", "{lines.txt}"],
    ("shapes",): ["--batch", "1", "--length", "4", "--attention"],
    ("profile",): ["--batch", "1", "--length", "4", "--rounds", "1", "--threads", "1"],
    ("demo",): [
        *("--run", "{here/demo}", "--set", "training.steps=1"),
        *("--set", "data.held_out=2", "--set", "data.examples=20"),
    ],
    ("lab", "run"): ["--folder", "{lab}", "--quick", "--jobs", "1", "--seeds", "1"],
    ("lab", "report"): ["--folder", "{lab}", "--out", "{here/report}"],
    ("doctor",): ["--quick", "--only", "future"],
    ("tokenizer", "train"): ["--workers", "1"],
    ("tokenizer", "explain"): ["--tokenizer", "{tokenizer.json}"],
    ("train",): ["--run", "{here/made}"],
    ("attention",): ["-o", "{here/new.svg}"],
    ("explore",): ["-o", "{here/new.html}"],  # else it would serve, and never end
    ("serve",): ["--describe", "--port", "0"],  # the same
}
ALWAYS = {"FILE", "PRESET|RUN"}  # arguments that are given though they need not be
# Good words that the metavar alone does not give.
GOOD = {
    ("generate", "run"): "{text}",
    ("encode", "run"): "{encoder}",
    ("predict", "run"): "{labels}",
    ("serve", "token_file"): "{token.txt}",
    ("encode", "output"): "{here/new.npy}",
    ("tokenizer", "decode", "file"): "{ids.txt}",
    ("tokenizer", "train", "vocab_size"): "270",
    ("tokenizer", "train", "workers"): "1",
    ("export", "to"): "numpy",
}
# Filters that refuse lines which are text to others; what they make of them is tried in tests/cli.
CHOOSY = {("tokenizer", "decode", "file")}
# Texts that may be empty, as a pipe is that nobody writes to.
COUNTS_NOTHING = {("tokenizer", "info", "text")}
# What a parameter is, where its declaration says only that it is text or a file.
KINDS = {
    ("doctor", "only"): "PROBE",
    ("doctor", "write"): "OUT.py",
    ("doctor", "baseline"): "BASELINE",
    ("doctor", "write_baseline"): "OUT",
    ("import", "run"): "NEW RUN",
    ("learn", "start", "course"): "PLAN",
}
# Values within every declared range that this command must refuse all the same, and why.
REFUSED = {
    ("attention", "text", ""): "there is nothing to look at",
    ("attention", "text", LONG): "no picture has room for it",
    ("attention", "target", LONG): "no picture has room for it",
    ("attention", "layer", str(HUGE)): "no model has that many layers",
    ("ablate", "text", ""): "there is nothing to take apart",
    ("ablate", "text", LONG): "more than is read at once",
    ("ablate", "target", LONG): "more than is read at once",
    ("shapes", "head", str(HUGE)): "no model has that many heads",
    ("shapes", "text", ""): "there is nothing to look at",
    ("average", "last", str(HUGE)): "so many were not kept",
    ("average", "best", str(HUGE)): "so many were not kept",
    ("generate", "top_p", "0"): "ranges of typer have no open ends",
}


class Command:
    """A leaf of the command tree: its parameters with what their annotations say, and words that work."""

    def __init__(self, path: tuple[str, ...], command: Any, place: Sandbox) -> None:
        self.path, self.place, self.roles = path, place, roles(place)
        hints = typing.get_type_hints(inspect.unwrap(command.callback), include_extras=True)
        self.parameters = [
            Parameter(one, hints[one.name], self.roles, KINDS.get((*path, one.name)))
            for one in command.params
            if one.name in hints
        ]

    def base(self, without: "Parameter | None" = None) -> list[str]:
        """Words that work, but for one parameter that is left to the caller."""
        words, options = list(self.path), [self.filled(word) for word in EXTRA.get(self.path, [])]
        for one in self.parameters:
            if one is without:
                options = one.removed_from(options)
            elif one.required or (one.metavar in ALWAYS and not one.is_option):
                words += one.with_value(self.good(one))
        return words + options

    def good(self, one: "Parameter") -> str:
        known = GOOD.get((*self.path, one.name))
        return self.filled(known) if known is not None else one.good

    def filled(self, word: str) -> str:
        return self.place.path(word[1:-1]) if word.startswith("{") else word

    def mistakes(self) -> Iterator[Mistake]:
        """Everything that can be done wrong with one parameter at a time."""
        yield Mistake([*self.base(), "--nonsense"], True, ("--nonsense",), "unknown option")
        for one in self.parameters:
            base = self.base(without=one)
            if one.is_option:
                yield from self.with_option(one, base)
            for kind, value, refused in one.values():
                place = (*self.path, one.name)
                if (kind == "fine" and place in CHOOSY) or (kind == "a pipe" and place in COUNTS_NOTHING):
                    continue
                must = refused or (*self.path, one.name, value) in REFUSED
                words = base + one.with_value(value) if one.is_option else self.with_argument(one, value)
                key = re.split("[=.:]", value)[0]
                shown = [part for part in (value, key, Path(value).name[:40]) if len(part) > 2] + [repr(value)]
                named = (*one.names, *shown)
                yield Mistake(words, must, named, f"{one.kind}: {kind}", unprivileged=kind == "unreadable")
            if one.required:  # of arguments, the words cannot tell which
                # … and the next may be taken for it
                taken = [Path(self.good(other)).name for other in self.parameters if not other.is_option]
                missing = taken + [name for other in self.parameters if other.required for name in other.names]
                yield Mistake(base, True, one.names if one.is_option else tuple(missing), "left out")

    def with_option(self, one: "Parameter", base: list[str]) -> Iterator[Mistake]:
        name = one.names[0]
        if one.flag:
            yield Mistake([*self.base(), f"{name}=yes"], True, (name,), "a flag with a value")
            return
        yield Mistake([*base, name], True, one.names, "without its value")
        if not one.multiple:
            good = one.with_value(self.good(one))
            yield Mistake([*base, *good, *good], True, one.names, "given twice")

    def with_argument(self, one: "Parameter", value: str) -> list[str]:
        """The arguments up to this one and those required; behind `--`, where dashes mean nothing."""
        options = [self.filled(word) for word in EXTRA.get(self.path, [])]
        options += [word for other in self.parameters if other.is_option and other.required
                    for word in other.with_value(self.good(other))]  # fmt: skip
        places = [other for other in self.parameters if not other.is_option]
        arguments = [
            value if other is one else self.good(other)
            for number, other in enumerate(places)
            if number <= places.index(one) or other.required
        ]
        return [*self.path, *options, "--", *arguments]


class Parameter:
    """An option or argument: its names, its type, and the values to try."""

    def __init__(self, parameter: Any, hint: Any, known: dict[str, Role], metavar: str | None) -> None:
        self.name, self.required, self.multiple = parameter.name, parameter.required, parameter.multiple
        self.is_option = parameter.param_type_name == "option"
        self.flag = getattr(parameter, "is_flag", False)
        shown = metavar or parameter.metavar or "TEXT"
        places = [] if self.is_option else [shown, parameter.metavar or shown]
        self.names = (*parameter.opts, *places, f"{parameter.name}")
        if self.is_option:  # the longest first: it is the one that messages use
            self.names = tuple(sorted(self.names, key=lambda name: (not name.startswith("--"), name)))
        base, *notes = typing.get_args(hint) if typing.get_origin(hint) is typing.Annotated else (hint,)
        self.info = next((note for note in notes if isinstance(note, typer.models.ParameterInfo)), None)
        parts = [part for part in (*typing.get_args(base), base) if part is not type(None)]
        self.type = next((part for part in parts if part in (int, float, bool)), None)
        literal = next((part for part in parts if typing.get_origin(part) is typing.Literal), None)
        named = next((part for part in parts if isinstance(part, type) and issubclass(part, Enum)), ())
        self.choices = typing.get_args(literal) if literal else tuple(named)
        self.role = known.get(shown)
        self.metavar = shown

    @property
    def kind(self) -> str:
        return self.type.__name__ if self.type else "choice" if self.choices else self.metavar

    @property
    def good(self) -> str:
        if self.type in (int, float):
            least = getattr(self.info, "min", None)
            return str(max(1, int(least or 1)))
        return str(self.choices[0]) if self.choices else self.role.good if self.role else "the cat"

    def with_value(self, value: str) -> list[str]:
        if self.flag:
            return [self.names[0]]
        return [f"{self.names[0]}={value}"] if self.is_option else [value]

    def removed_from(self, words: list[str]) -> list[str]:
        """The words without this option and its value."""
        if not self.is_option:
            return words
        kept, skip = [], False
        for word in words:
            if skip:
                skip = False
            elif word in self.names:
                skip = not self.flag
            else:
                kept.append(word)
        return kept

    def values(self) -> Iterator[tuple[str, str, bool]]:
        """(what is odd about it, the value, whether it must be refused)."""
        if self.flag:
            return
        if self.type is None and self.choices:
            yield from (("unknown", "nonsense", True), ("empty", "", True))
        elif self.type in (int, float):
            yield from self.numbers()
        elif self.role is None:
            yield f"the metavar {self.metavar} is of no known kind: see bench/faults", "", False
        else:
            yield from ((kind, value, True) for kind, value in self.role.bad.items())
            yield from (("fine", value, False) for value in self.role.fine)
            if "path" in str(self.info) or self.metavar in ("RUN", "FILE", "F", "TOKENIZER", "IN", "OUT", "DIR"):
                yield "empty", "", True

    def numbers(self) -> Iterator[tuple[str, str, bool]]:
        least, most = getattr(self.info, "min", None), getattr(self.info, "max", None)
        for value in ("abc", "", "nan", "inf", "-inf", "1e", "0x10", "9" * 5000, "1 2"):
            yield ("no number" if value[:1] != "9" else "5,000 digits"), value, True
        if self.type is int:
            yield "a fraction", "1.5", True
            if least is None:
                yield "declares no least value", "-1", True
        beyond = [*([most + 1] if most is not None else []), *([least - 1] if least else [])]
        for value in dict.fromkeys((-1, 0, HUGE, -HUGE, *beyond)):  # a least of 1 has 0 below it
            outside = (least is not None and value < least) or (most is not None and value > most)
            yield "out of range" if outside else "within range", str(value), outside
