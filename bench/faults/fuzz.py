"""A mutation fuzz of everything that is read from others: settings, recipes, tokenizers in all formats, the state and
the tensors of a checkpoint, metrics, tables of text, gzip, and the lines that go through the filters.

Each input is whole at first and is then changed a little: bytes flipped, cut, doubled and put in, values replaced by
hostile ones, keys removed. A command ends with status 0, or with 2 and one line; never with a traceback, a signal, a
hang or more than a few gigabytes, and nothing that it says holds a control character. Seeded, so that a number leads
back to its case: `python -m bench.faults.fuzz NUMBER`. Open-ended: CLEARHEAD_FUZZ=100000 make bench-faults.
"""

import gzip
import json
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.faults.fork import WORKSPACE
from bench.faults.forked import caching_in, call
from bench.faults.hostile import header, sealed
from bench.faults.outcome import Trial
from bench.faults.run_folder import prepare
from bench.faults.sandbox import write_foreign

SEED, SMALL, WHOLE = 20_170_612, 36, 1040  # the cases in the tests, and in the whole
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
DEEP: Any = json.loads("[" * 800 + "]" * 800)
HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 255, 1 << 31, 1 << 63, 10**30, 1e308, -0.5, float("nan"), float("inf")),
    *("", "x", "\ud800", "\x1b[2J\x9b31m", "a" * 70_000, "(a+)+b", "(" * 3000, "../../etc", "9" * 5000),
    *([], {}, [[]], [None], ["a", "b", "c"], {"a": 1}, DEEP),
)
BYTES = (b"\0", b"\xff\xfe", b"\x1b[2J", b"\n", b"\t", b"[" * 100_000, b"9" * 5000, b'"', b"\\ud800", b"\x9b", b"{}")
Change = Callable[[random.Random, bytes], bytes]


# ---- changes -------------------------------------------------------------------------------------------------------


def change_bytes(chance: random.Random, content: bytes) -> bytes:
    """One to three accidents."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(content) + 1)
        end = min(len(content), start + chance.choice((1, 1, 4, 64, 4096)))
        part = content[start:end]
        new = chance.choice(
            (
                b"",
                part + part,
                bytes(byte ^ (1 << chance.randrange(8)) for byte in part),
                part + chance.choice(BYTES),
                chance.choice(BYTES),
                chance.randbytes(len(part)),
            )
        )
        content = content[:start] + new + content[end:]
        if chance.random() < 0.1:
            content = content[: chance.randrange(len(content) + 1)]
    return content


def change_json(chance: random.Random, content: bytes) -> bytes:
    """A value somewhere in the tree becomes another, or its key is gone or called otherwise."""
    value = json.loads(content)
    for _ in range(chance.randint(1, 2)):
        holder: Any = value
        while True:
            if not isinstance(holder, dict | list) or not holder:
                break
            key: Any = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
            if isinstance(holder[key], dict | list) and holder[key] and chance.random() < 0.7:
                holder = holder[key]
                continue
            way = chance.random()
            if way < 0.6:
                holder[key] = chance.choice(HOSTILE)
            elif way < 0.8:
                del holder[key]
            elif isinstance(holder, dict):
                holder[chance.choice(("x", "", "\ud800", "type", "id", key + "s"))] = holder[key]
            else:
                holder.append(holder[key])
            break
    return json.dumps(value).encode()


def change_toml(chance: random.Random, content: bytes) -> bytes:
    """A line's value becomes another; or a line is gone, or there twice, or under another table."""
    lines = content.decode().splitlines()
    for _ in range(chance.randint(1, 2)):
        place = chance.randrange(len(lines))
        key, equals, _ = lines[place].partition(" = ")
        way = chance.random()
        if equals and way < 0.7:
            lines[place] = f"{key} = {toml(chance.choice(HOSTILE))}"
        elif way < 0.8:
            del lines[place]
        elif way < 0.9:
            lines.insert(chance.randrange(len(lines) + 1), lines[place])
        else:
            lines[place] = change_bytes(chance, lines[place].encode()).decode("utf-8", "ignore")
        lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def toml(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    return '"null"' if value is None else json.dumps(value, ensure_ascii=False)


def change_gzip(chance: random.Random, content: bytes) -> bytes:
    """The packed bytes, or the text inside, or a bomb."""
    way = chance.random()
    if way < 0.5:
        return change_bytes(chance, content)
    if way < 0.9:
        return gzip.compress(change_bytes(chance, gzip.decompress(content)), mtime=0)
    return content + gzip.compress(bytes(1 << 24) * 24, 1, mtime=0)


# ---- what is changed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A file in a folder, ways to change it, and commands that read it. `{new}` in a command is an empty place."""

    name: str
    file: Path
    ways: tuple[Change, ...]
    commands: tuple[str, ...]
    sealed: bool = False  # a file of a checkpoint, whose checksum is made right again


def targets(folder: Path) -> list[Target]:
    """Three runs, tokenizers in every format, somebody else's model, and text, all in a folder."""
    for kind in ("pairs", "text", "labels"):
        prepare(folder / kind, kind)
    pairs, text, labels = folder / "pairs", folder / "text", folder / "labels"
    for form in ("gpt2/", "x.tiktoken"):
        call(("tokenizer", "convert", "whole/tokenizer.json", form), folder=text)
    write_foreign(text / "foreign", text / "whole/tokenizer.json")
    (text / "plan.toml").write_text('exercises = ["attention"]\n')
    from clearhead.tokenizer import Characters

    Characters.train(["the cat sat on the mat"]).save(text / "characters.json")
    (pairs / "lines.tsv").write_text("".join(f"{n} {n + 1}\t{n}\n" for n in range(6)) * 4)
    (pairs / "packed.gz").write_bytes(gzip.compress(b"1 2 3\n0 5\n" * 50, mtime=0))
    (pairs / "tsv.toml").write_text(
        (pairs / "recipe.toml").read_text().partition("[data]")[0]
        + '[data]\ntsv = "lines.tsv"\n[tokenizer]\nkind = "characters"\n[training]\nsteps = 1\nmax_tokens = 64\n'
    )
    rows = [{"source": f"{n} {n + 1}", "target": f"{n}, {n}"} for n in range(6)]
    (pairs / "lines.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) * 4)
    (pairs / "lines.csv").write_text("source,target\n" + "".join(f'{n} {n + 1},"{n}, {n}"\n' for n in range(6)) * 4)
    for kind in ("csv", "jsonl"):
        (pairs / f"{kind}.toml").write_text((pairs / "tsv.toml").read_text().replace("lines.tsv", f"lines.{kind}"))
    best = pairs / "whole" / "checkpoints" / (pairs / "whole" / "best").read_text().strip()
    last = pairs / "whole" / "checkpoints" / (pairs / "whole" / "latest").read_text().strip()
    resume = "train recipe.toml --run whole --set training.steps=7"
    translate = "translate whole lines.txt --beam-size 1"
    new = "--run {new} --set training.steps=1"
    header_or_bytes = (change_header, change_bytes)
    encode = "tokenizer encode {file} lines.txt"
    begin = f"train recipe.toml --from whole {new}"
    look, verify = "data look {file} --json", "data prepare recipe.toml --verify"
    (stores,) = (text / "cache/stores").iterdir()
    plan = "learn start {new} --course {file}"
    return [
        Target("config.toml", pairs / "whole/config.toml", (change_toml,), (translate, "checkpoints whole", resume)),
        Target("recipes", pairs / "recipe.toml", (change_toml,), (f"train {{file}} {new}",)),
        Target("recipes", pairs / "tsv.toml", (change_toml,), (f"train {{file}} {new}",)),
        Target(
            "tokenizer.json", text / "whole/tokenizer.json", (change_json, change_bytes), (encode, "generate whole the")
        ),
        Target("tokenizer.json", pairs / "whole/tokenizer.json", (change_json, change_bytes), (encode, translate)),
        Target("tokenizer.json", text / "characters.json", (change_json, change_bytes), (encode,)),
        Target("vocab.json and merges.txt", text / "gpt2/vocab.json", (change_json, change_bytes), (encode,)),
        Target("vocab.json and merges.txt", text / "gpt2/merges.txt", (change_bytes,), (encode,)),
        Target("x.tiktoken", text / "x.tiktoken", (change_bytes,), (f"{encode} --pattern gpt2",)),
        Target("state.json", best / "state.json", (change_json, change_bytes), (translate, "checkpoints whole")),
        Target("state.json", last / "state.json", (change_json,), (resume, "average whole --best 2")),
        Target("safetensors", best / "model.safetensors", header_or_bytes, (translate,), sealed=True),
        Target("safetensors", last / "optimizer.safetensors", header_or_bytes, (resume,), sealed=True),
        Target("metrics.jsonl", pairs / "whole/metrics.jsonl", (change_bytes,), ("plot whole", resume)),
        Target("tables of text", pairs / "lines.tsv", (change_bytes,), (f"train tsv.toml {new}",)),
        Target("tables of text", pairs / "lines.csv", (change_bytes,), ("data look csv.toml",)),
        Target("tables of text", pairs / "lines.jsonl", (change_bytes,), ("data look jsonl.toml --json",)),
        Target("recipes", pairs / "csv.toml", (change_toml,), (look,)),
        Target("the cache of data", stores / "about.json", (change_json, change_bytes), ("data look recipe.toml",)),
        Target("the cache of data", stores / "train.ids", (change_bytes,), (f"train recipe.toml {new}", verify)),
        Target("gzip", pairs / "packed.gz", (change_gzip,), ("score whole --source {file} --target {file}",)),
        Target(
            "lines", pairs / "lines.txt", (change_bytes,), (translate, "score whole --source {file} --target {file}")
        ),
        Target(
            "lines",
            text / "lines.txt",
            (change_bytes,),
            (encode.replace("{file}", "whole"), "score whole --text {file}"),
        ),
        Target("texts with labels", labels / "labels.tsv", (change_bytes,), (f"train recipe.toml {new}", "plot whole")),
        Target("lines", labels / "lines.txt", (change_bytes,), ("predict whole {file}", "predict whole {file} --json")),
        Target("data.json", labels / "whole/data.json", (change_json, change_bytes), (resume,)),
        Target("config.toml", labels / "whole/config.toml", (change_toml,), ("predict whole lines.txt", begin)),
        Target(
            "models of others", text / "foreign/config.json", (change_json, change_bytes), ("import foreign {new}",)
        ),
        Target("models of others", text / "foreign/model.safetensors", header_or_bytes, ("import foreign {new}",)),
        Target("models of others", text / "foreign/tokenizer.json", (change_json,), ("import foreign {new}",)),
        Target("plans of a course", text / "plan.toml", (change_toml, change_bytes), (plan,)),
    ]


def change_header(chance: random.Random, content: bytes) -> bytes:
    """The JSON at the beginning of a safetensors file."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x"
        path.write_bytes(content)
        (path.parent / "state.json").write_text('{"sha256": {}}')
        header(path, lambda told: json.loads(change_json(chance, json.dumps(told).encode())))
        return path.read_bytes()


# ---- one case ------------------------------------------------------------------------------------------------------


def trial(number: int, found: list[Target], folder: Path) -> Trial:
    """The case of this number: a target, a change, a command, all drawn from the seed."""
    chance = random.Random(f"{SEED} {number}")
    target = found[number % len(found)]
    command = chance.choice(target.commands)
    case = f"{number}: {target.file.relative_to(folder)}: {command}"
    return Trial(f"{target.name} mutated", case, partial(attempt, chance, target, command, folder))


def attempt(chance: random.Random, target: Target, command: str, folder: Path) -> str:
    home = folder / target.file.relative_to(folder).parts[0]
    with tempfile.TemporaryDirectory(dir=folder, prefix="case-") as name:
        place = Path(name) / "case"
        shutil.copytree(home, place, ignore=shutil.ignore_patterns("other", "case-*"))
        file = place / target.file.relative_to(home)
        changed = chance.choice(target.ways)(chance, file.read_bytes())
        file.write_bytes(changed)
        if target.sealed:
            sealed(file, changed)
        words = [word.replace("{file}", str(file)).replace("{new}", str(place / "new")) for word in command.split()]
        ended = call(words, caching_in(place / "cache"), place)
    wrong = ended.fault()
    if not wrong and (said := CONTROL.search(ended.err)):
        wrong = f"a control character on standard error: {ended.err[max(0, said.start() - 80) : said.end() + 20]!r}"
    return wrong


def trials(small: bool) -> Iterator[Trial]:
    count = SMALL if small else int(os.environ.get("CLEARHEAD_FUZZ", WHOLE))
    with tempfile.TemporaryDirectory(dir=WORKSPACE) as name:
        folder = Path(name)
        found = targets(folder)
        for number in range(count):
            yield trial(number, found, folder)


def again(number: int) -> None:
    """Try one case once more and say what came of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(trial(number, targets(folder), folder).outcome())


if __name__ == "__main__":
    again(int(sys.argv[1]))
