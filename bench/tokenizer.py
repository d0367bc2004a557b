"""`make bench-tokenizer`: training and encoding against `tokenizers` and `tiktoken`, both written in Rust.

Training: the same texts, vocabulary size, special tokens and pattern; the merges must come out equal, and this is
checked. Every side runs at its best number of threads or processes.

Encoding: GPT-2's vocabulary, one thread, and a cold cache: what a side remembers of words is cleared before every run.
Ours runs with its loop in numpy and, where numba is installed, compiled. All give the same ids, and this is checked,
too. Of `tokenizers` only the time of `encode_batch_fast` is taken, not of turning its results into lists of ids, which
the others do.
"""

import argparse
import gzip
import json
import os
import random
import sysconfig
import time
from collections.abc import Callable
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import tiktoken
from babel import Locale, dates
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from bench.measure import Contestant, compete, report
from clearhead.machine import machine
from clearhead.tokenizer import SPECIAL, BytePair, load, many, train
from clearhead.tokenizer.split import GPT2

DATA = Path(os.environ.get("CLEARHEAD_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def standard_library() -> list[str]:
    """Python's own sources, those that are UTF-8: on every machine, 31 MB in Python 3.11."""
    texts = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" not in path.parts:
            try:
                texts.append(path.read_bytes().decode())
            except UnicodeDecodeError:
                continue
    return texts


def multi30k(language: str) -> list[str]:
    with gzip.open(DATA / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8", newline="") as file:
        return list(file)


def without_spaces(language: str, joints: str, characters: int) -> list[str]:
    """Sentences without spaces, made of Babel's names of countries, languages, scripts, currencies and days."""
    locale = Locale(language)
    names = [
        name.replace(" ", "")
        for table in (locale.territories, locale.languages, locale.scripts, locale.currencies)
        for name in table.values()
    ]
    chance = random.Random(1)
    texts: list[str] = []
    while sum(map(len, texts)) < characters:
        day = date(chance.randint(1950, 2050), chance.randint(1, 12), chance.randint(1, 28))
        said = [dates.format_date(day, "full", locale), *chance.choices(names, k=60)]
        texts.append("".join(name + chance.choice(joints) for name in said))
    return texts


def use_threads(count: int) -> None:
    """tokenizers reads this at every call."""
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if count > 1 else "false"


def compare_training(title: str, texts: list[str], vocab_size: int, rounds: int) -> None:
    merges: dict[str, list[list[str]]] = {}
    workers = 1

    def set_workers(count: int) -> None:
        nonlocal workers
        workers = count

    def ours() -> None:
        merges["ours"] = json.loads(train(texts, vocab_size, workers=workers).to_json())["model"]["merges"]

    def theirs() -> None:
        peer = Tokenizer(models.BPE())
        peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size, special_tokens=list(SPECIAL), show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
        peer.train_from_iterator(texts, trainer)
        merges["tokenizers"] = json.loads(peer.to_str())["model"]["merges"]

    sides = [Contestant("clearhead", ours, set_workers), Contestant("tokenizers", theirs, use_threads)]
    compete(sides, rounds)
    if merges["ours"] != merges["tokenizers"]:
        raise SystemExit(f"{title}: the merges differ")
    report(f"training, {title}, vocabulary {vocab_size:,}", sides[0], sides[1:])


def compare_encoding(title: str, texts: list[str], gpt2: BytePair, peers: "Peers", rounds: int) -> None:
    ids: dict[str, list[list[int]]] = {}

    def ours() -> None:
        many.PAYS = 1 << 62
        gpt2.clear_cache()
        ids["ours"] = gpt2.encode_batch(texts)

    def ours_compiled() -> None:
        many.PAYS = 0
        gpt2.clear_cache()
        ids["ours, compiled"] = gpt2.encode_batch(texts)

    def by_tiktoken() -> None:
        ids["tiktoken"] = [peers.tiktoken.encode_ordinary(text) for text in texts]

    def by_tokenizers() -> None:
        peers.tokenizers.model._clear_cache()
        peers.encodings = peers.tokenizers.encode_batch_fast(texts)

    use_threads(1)
    names: list[tuple[str, Callable[[], None]]] = [
        ("clearhead", ours), ("tiktoken", by_tiktoken), ("tokenizers encode_batch_fast", by_tokenizers),
    ]  # fmt: skip
    if find_spec("numba") is not None:
        names.append(("clearhead[fast]", ours_compiled))
    sides = compete([Contestant(name, work) for name, work in names], rounds)
    if not all(one == [encoding.ids for encoding in peers.encodings] for one in ids.values()):
        raise SystemExit(f"{title}: the ids differ")
    size = sum(len(text.encode()) for text in texts)
    report(f"encoding, {title}, {size / 1e6:.1f} MB", sides[0], sides[1:], "bytes/s", size)
    if len(sides) > 3:
        report("  compiled", sides[3], sides[1:3], "bytes/s", size)


class Peers:
    """GPT-2's vocabulary in the two peers' hands."""

    def __init__(self, gpt2: BytePair) -> None:
        folder = DATA / "gpt2-bpe"
        self.tiktoken = tiktoken.Encoding("gpt2", pat_str=GPT2, mergeable_ranks=gpt2.vocabulary, special_tokens={})
        self.tokenizers = Tokenizer(models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe")))
        self.tokenizers.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.encodings: list = []


def show_growth(gpt2: BytePair) -> None:
    """One word without a place to cut, twice as long each time: the time should about double."""
    chance = random.Random(1)
    for title, letters in (("equal letters", "a"), ("random letters", "etaoinshrdlucmwfgypbvk")):
        print(f"\none word of {title}")
        for length in (125_000, 250_000, 500_000, 1_000_000):
            word = "".join(chance.choices(letters, k=length))
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                gpt2.encode_ordinary(word)
                seconds.append(time.perf_counter() - start)
            print(f"  {length:>9,} letters  {sorted(seconds)[1]:6.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("training", "encoding", "growth"), help="all unless given")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    print(machine())
    sources = standard_library()
    if asked.part in (None, "training"):
        compare_training("Multi30k English and German", multi30k("en") + multi30k("de"), 10_000, asked.rounds)
        compare_training("the standard library's sources", sources, 8_000, max(3, asked.rounds // 2))
    gpt2 = load(DATA / "gpt2-bpe")
    assert isinstance(gpt2, BytePair)
    if asked.part in (None, "encoding"):
        peers = Peers(gpt2)
        shakespeare = [(DATA / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")]
        for title, texts in (
            ("English, Multi30k line by line", multi30k("en")),
            ("English, Shakespeare as one text", shakespeare),
            ("Python source, every tenth file of the standard library", sources[::10]),
            ("German, Multi30k line by line", multi30k("de")),
            ("Japanese without spaces", without_spaces("ja", "のとはをが、。", 200_000)),
            ("Chinese without spaces", without_spaces("zh", "的和是在了，。", 200_000)),
        ):
            compare_encoding(title, texts, gpt2, peers, asked.rounds)
    if asked.part in (None, "growth"):
        show_growth(gpt2)


if __name__ == "__main__":
    main()
