"""`clearhead tokenizer`: train a byte-pair encoding, encode and decode lines, convert files, and see how it works."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import Force, refuse_to_replace
from clearhead.cli.usage import STYLE
from clearhead.errors import InputError, visible
from clearhead.ranges import MOST_THREADS
from clearhead.reading import LONGEST_LINE, lines_of

if TYPE_CHECKING:  # what a command needs is imported when it runs, so that --help answers at once
    from clearhead.tokenizer import BytePair, Tokenizer
    from clearhead.tokenizer.learn import Progress

app = typer.Typer(
    name="tokenizer",
    help="Byte-pair encoding: train it, apply it, convert it, see how it works.",
    **STYLE,
)

WARNINGS = 10  # lines complained about one by one; the rest is counted

PATTERN_HELP = "How text is cut into words: gpt2, cl100k, o200k, or a regular expression of your own."
Model = Annotated[Path, typer.Argument(metavar="TOKENIZER", help="A tokenizer.json, another format, or a folder.")]
File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Standard input unless given.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON value a line.")]
Pattern = Annotated[str | None, typer.Option(metavar="P", help="The pattern of a .tiktoken file, which has none.")]
Special = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=ID", help="A special token of a .tiktoken file, which has none. Repeatable."),
]


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help='Text files; "-" is standard input.')],
    vocab_size: Annotated[
        int, typer.Option(min=1, max=10_000_000, metavar="N", help="Tokens in all: special, 256 bytes, learned.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="The tokenizer.json to write.")],
    pattern: Annotated[str, typer.Option(metavar="P", help=PATTERN_HELP)] = "gpt2",
    special: Annotated[
        list[str] | None,
        typer.Option(metavar="T", help='A special token. Repeatable; <pad> <s> </s> <unk> unless given, "" for none.'),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=MOST_THREADS, metavar="N", help="Processes; one a core unless given.")
    ] = None,
    force: Force = False,
) -> None:
    """Learn merges from text files and write a tokenizer.json.

    Files are read in blocks, so they may be larger than memory. Bytes that are no UTF-8 are learned as bytes.

    \b
    Examples:
      clearhead tokenizer train corpus.txt --vocab-size 8000 -o tokenizer.json
      zcat *.gz | clearhead tokenizer train - --vocab-size 10000 -o pairs.json
      clearhead tokenizer train *.py --vocab-size 4000 --pattern o200k -o py.json
      clearhead tokenizer train a.txt --vocab-size 300 --special "<end>" -o a.json
    """
    from clearhead import tokenizer

    if not pattern:
        raise InputError("--pattern is empty: gpt2, cl100k, o200k or a regular expression is wanted")
    target = output / "tokenizer.json" if output.is_dir() else output
    if not target.parent.is_dir():  # found out now, and not when the work is done
        raise InputError(f"cannot write {output}: there is no folder {target.parent}")
    refuse_to_replace(target, force)
    names = tokenizer.SPECIAL if special is None else [name for name in special if name]
    texts = tokenizer.read_texts(files)
    with _progress(files) as progress:
        trained = tokenizer.train(texts, vocab_size, special=names, pattern=pattern, workers=workers, progress=progress)
    trained.save(target)
    _say(f"{target}: {trained.size:,} tokens, {len(trained.merges):,} merges")


@app.command()
def encode(
    model: Model, file: File = None, as_json: Json = False, pattern: Pattern = None, special: Special = None
) -> None:
    """Turn lines of text into lines of ids.

    One line in is one line out, without its line end. Names of special tokens are ordinary text here. Bytes that are
    no UTF-8 are encoded as they are, with a warning. With --json a line is a list.

    \b
    Examples:
      clearhead tokenizer encode tokenizer.json < text.txt > ids.txt
      echo "unbelievable" | clearhead tokenizer encode tokenizer.json --json
    """
    tokenizer = _load(model, pattern, special)

    def encode_line(line: bytes, warn: Callable[[str], None]) -> bytes:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            warn(f"byte {error.start} is no UTF-8; the bytes are encoded as they are")
            text = line.decode("utf-8", "surrogateescape")
        ids = tokenizer.encode_ordinary(text)
        return (json.dumps(ids) if as_json else " ".join(map(str, ids))).encode()

    _filter(file, encode_line)


@app.command()
def decode(
    model: Model, file: File = None, as_json: Json = False, pattern: Pattern = None, special: Special = None
) -> None:
    """Turn lines of ids back into lines of text.

    One line in is one line out: a line end inside a text is written as a space, with a warning. With --json a
    line is a list of ids and becomes a JSON string, in which line ends survive.

    \b
    Examples:
      clearhead tokenizer decode tokenizer.json < ids.txt
      clearhead tokenizer decode tokenizer.json ids.jsonl --json
    """
    tokenizer = _load(model, pattern, special)

    def decode_line(line: bytes, warn: Callable[[str], None]) -> bytes:
        try:
            ids = json.loads(line) if as_json else [int(word) for word in line.split()]
            if not isinstance(ids, list) or not all(type(number) is int for number in ids):
                raise ValueError
        except (ValueError, RecursionError):
            wanted = "a JSON list of integers" if as_json else "integers with spaces between"
            raise InputError(f"{line[:60]!r} is not {wanted}") from None
        if as_json:
            return json.dumps(tokenizer.decode(ids), ensure_ascii=False).encode()
        data = tokenizer.decode_bytes(ids)
        if b"\n" in data:
            warn("a line end inside the text is written as a space (--json keeps it)")
        return data.replace(b"\n", b" ")

    _filter(file, decode_line)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A tokenizer in any format that is known.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="x.json, x.tiktoken, or FOLDER/ for GPT-2's two files.")],
    merges_as_text: Annotated[
        bool, typer.Option("--merges-as-text", help="In x.json, merges as tokenizers before 0.20 wrote them.")
    ] = False,
    pattern: Pattern = None,
    special: Special = None,
    force: Force = False,
) -> None:
    """Write a tokenizer in another format; what that cannot express exactly is refused.

    \b
    Examples:
      clearhead tokenizer convert gpt2/ tokenizer.json
      clearhead tokenizer convert tokenizer.json mine.tiktoken
      clearhead tokenizer convert r50k.tiktoken gpt2/ --pattern gpt2
    """
    from clearhead.tokenizer import formats

    if not target:
        raise InputError("OUT is empty: the name of a file or a folder is wanted")
    first = Path(target, "vocab.json") if Path(target).is_dir() or target.endswith(os.sep) else Path(target)
    gpt2 = any(first.name in pair for pair in formats.GPT2_NAMES)
    if first.suffix not in (".json", ".tiktoken") and not gpt2:
        raise InputError(f"{target}: the name must end in .json, .tiktoken or, for a folder, in {os.sep}")
    if merges_as_text and (first.suffix != ".json" or gpt2):
        raise InputError(f"--merges-as-text is for x.json, not for {target}")
    for name in next((pair for pair in formats.GPT2_NAMES if first.name in pair), (first.name,)):
        refuse_to_replace(first.with_name(name), force)
    formats.save(_load(source, pattern, special), target, merges_as_text)


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="The text to explain.")],
    tokenizer: Annotated[
        Path,
        typer.Option("-t", "--tokenizer", metavar="TOKENIZER", help="The tokenizer; tokenizer.json here unless given."),
    ] = Path("tokenizer.json"),
    pattern: Pattern = None,
    special: Special = None,
) -> None:
    """Show the merges of a text happening, step by step, with their ranks.

    \b
    Examples:
      clearhead tokenizer explain "unbelievable"
      clearhead tokenizer explain "Ein süßer Hund" -t runs/multi30k
    """
    from clearhead.tokenizer.explain import explain as lines

    for line in lines(_byte_pair(_load(tokenizer, pattern, special), "explain"), text):
        typer.echo(line)


@app.command()
def info(
    model: Model,
    text: Annotated[Path | None, typer.Option(metavar="F", help="A text to try the vocabulary on.")] = None,
    as_json: Json = False,
    pattern: Pattern = None,
    special: Special = None,
) -> None:
    """Show size, pattern, special and longest tokens; with a text, bytes per token and how many tokens are rare.

    \b
    Examples:
      clearhead tokenizer info tokenizer.json
      clearhead tokenizer info gpt2/ --text corpus.txt
    """
    from clearhead.tokenizer import BytePair
    from clearhead.tokenizer.corpus import read_texts
    from clearhead.tokenizer.explain import RARE, show, use
    from clearhead.tokenizer.split import PATTERNS

    tokenizer = _load(model, pattern, special)
    facts: dict[str, object] = {"kind": tokenizer.kind, "size": tokenizer.size, "special": tokenizer.special}
    if tokenizer.marks:
        facts["marks"] = tokenizer.marks
    if tokenizer.around is not None:
        facts["around a text"] = [show(tokenizer.token_bytes(token)) for token in sum(tokenizer.around, ())]
    if isinstance(tokenizer, BytePair):
        names = {expression: name for name, expression in PATTERNS.items()}
        longest = sorted(tokenizer.vocabulary, key=len, reverse=True)[:10]
        facts |= {
            "merges": len(tokenizer.merges),
            "pattern": names.get(tokenizer.pattern, tokenizer.pattern),
            "longest tokens": [show(token) for token in longest],
        }
    if text is not None:
        found = use(tokenizer, read_texts([text]))
        facts |= {
            "bytes": found.bytes,
            "tokens": found.tokens,
            "bytes per token": round(found.bytes_per_token, 3),
            "share of tokens never used": round(found.unused, 4),
            f"share of tokens used fewer than {RARE} times": round(found.rare, 4),
        }
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        if isinstance(value, dict):
            value = "  ".join(f"{name} {number}" for name, number in value.items()) or "none"
        elif isinstance(value, list):
            value = "  ".join(token if len(token) <= 20 else f"{token[:20]}…" for token in value)
        shown = f"{value:,}" if isinstance(value, int) else visible(str(value))
        typer.echo(f"{key:<{width}}  {shown}")


def _load(path: Path, pattern: str | None, special: list[str] | None) -> "Tokenizer":
    from clearhead.tokenizer import load

    numbered = {}
    for entry in special or []:
        name, _, number = entry.rpartition("=")
        if not name or not number.isdecimal() or len(number) > 18:
            raise InputError(f"--special {entry}: a name, = and an id are wanted, as in <|endoftext|>=50256")
        numbered[name] = int(number)
    return load(path, pattern=pattern, special=numbered)


def _byte_pair(tokenizer: "Tokenizer", command: str) -> "BytePair":
    from clearhead.tokenizer import BytePair

    if not isinstance(tokenizer, BytePair):
        raise InputError(f"{command} needs a byte-pair encoding; {type(tokenizer).__name__} has no merges")
    return tokenizer


def _filter(file: Path | None, change: Callable[[bytes, Callable[[str], None]], bytes]) -> None:
    """Write one line for each line read; one that cannot be used gives an empty line, and status 2 at the end."""
    out = sys.stdout.buffer
    warned = failed = number = 0
    # a text may hold what a terminal obeys
    safe = (lambda data: visible(data.decode("utf-8", "replace"), keep="\t").encode()) if sys.stdout.isatty() else bytes

    def warn(message: str) -> None:
        nonlocal warned
        warned += 1
        if warned <= WARNINGS:
            _say(f"line {number}: {message}")

    try:
        with sys.stdin.buffer if file is None else file.open("rb") as lines:
            for line, whole in lines_of(lines, file or "standard input"):
                number += 1
                try:
                    if not whole:
                        raise InputError(f"longer than {LONGEST_LINE >> 20} MiB, the most a line may have")
                    changed = change(line, warn)
                except InputError as error:
                    warn(str(error))
                    failed += 1
                    changed = b""
                out.write(safe(changed) + b"\n")
                if file is None:
                    out.flush()  # whoever feeds us line by line may wait for the answer
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {file or 'standard input'}: {error.strerror}") from None
    if warned > WARNINGS:
        _say(f"… and {warned - WARNINGS} more such lines")
    if failed:
        raise InputError(f"{failed} of {number} lines could not be used; empty lines stand in their places")


def _say(message: str) -> None:
    print(visible(message), file=sys.stderr)


@contextmanager
def _progress(files: list[Path]) -> Iterator["Progress | None"]:
    """A bar for reading and one for merging, if somebody is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID

    size = sum(os.path.getsize(file) for file in files if file.is_file())
    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, total=1, completed=1)
                tasks[stage] = bars.add_task(stage)
            bars.update(tasks[stage], completed=done, total=total or max(size, done))

        yield update
