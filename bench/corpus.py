"""`make bench-corpus`: how preparing and training grow with the corpus, beside what others do with the same text.

Corpora of text and of pairs are made here: words of a Zipf distribution, some of them new, so that a tokenizer has to
work. For each size, in processes of their own: the time from `import torch` to the first update, cold (nothing in the
cache) and warm (another run, and the same run resumed), on one core and on two, under torchrun with two processes; and
the peak of memory. Beside it, with the same vocabulary: nanoGPT's way (tiktoken over the text, ids to a file) and
`datasets` with `tokenizers`, until a first batch is there. A time is taken once: these are minutes, and only ratios
within a run are compared. With a folder, corpora and figures stay there, and what is missing is measured.

    python -m bench.corpus                                             # 10 and 50 MB
    python -m bench.corpus --sizes 10 200                              # larger ones
    python -m bench.corpus --sizes 2000 --folder DIR --steps two warm  # in pieces
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, CONTEXT, STEPS = 8000, 128, 20


# ---- corpora -------------------------------------------------------------------------------------------------------


def words(count: int, seed: int) -> list[str]:
    """Words of two to five syllables."""
    random = np.random.default_rng(seed)
    parts = [a + b for a in "bdfgklmnprstvw" for b in ("a", "e", "i", "o", "u", "an", "er", "in", "ost", "ü")]
    sizes = random.integers(2, 6, count)
    return ["".join(parts[i] for i in random.integers(0, len(parts), size)) for size in sizes]


def write_corpus(folder: Path, megabytes: int) -> None:
    """`text`, in documents between blank lines, and `pairs.source` and `pairs.target`, of so many megabytes each."""
    random = np.random.default_rng(megabytes)
    lists = np.array(words(50_000, 1)), np.array(words(50_000, 2))
    weights = 1 / (np.arange(50_000) + 2.7)
    weights /= weights.sum()
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "text").open("w") as text,
        (folder / "s").open("w") as source,
        (folder / "t.part").open("w") as target,
    ):
        while text.tell() < megabytes << 20:
            lengths = random.integers(4, 30, 20_000)
            drawn = random.choice(50_000, size=int(lengths.sum()), p=weights)
            chosen = [words[drawn] for words in lists]
            ends = np.cumsum(lengths).tolist()
            lines = [
                [" ".join(some[start:end]) + f" {end % 997}." for start, end in zip([0, *ends[:-1]], ends, strict=True)]
                for some in chosen
            ]
            text.write("".join(line + "\n" * (1 + (number % 9 == 8)) for number, line in enumerate(lines[0])))
            if source.tell() < megabytes << 19:
                source.write("\n".join(lines[0]) + "\n")
                target.write("\n".join(lines[1]) + "\n")
    (folder / "t.part").rename(folder / "t")  # by this it is known to be whole


def recipe(folder: Path, kind: str) -> Path:
    data = f'text = "{folder}/text"\ndocuments = "blank-line"\ncontext = {CONTEXT}\n'
    if kind == "pairs":
        data = f'source = "{folder}/s"\ntarget = "{folder}/t"\n'
    path = folder / f"{kind}.toml"
    layers = "decoder_layers = 1" if kind == "text" else "encoder_layers = 1\ndecoder_layers = 1"
    path.write_text(
        f'[data]\n{data}validation_share = 0.001\n[tokenizer]\nvocab_size = {VOCABULARY}\n[model]\npreset = "tiny"\n'
        f"d_model = 32\nheads = 2\nd_ff = 32\n{layers}\n[training]\nsteps = {STEPS}\nmax_tokens = 2048\nwarmup = 10\n"
        f"peak = 1e-3\nvalidate_every = {STEPS}\nsamples = 0\nthreads = 1\n"
    )
    return path


# ---- children, each in a process of its own ------------------------------------------------------------------------


def train_child(path: str, run: str) -> dict[str, float]:
    """Seconds from `import torch` to the first update, of preparation alone, and megabytes at most."""
    import torch  # noqa: F401 (its import is not counted)

    began = time.perf_counter()
    from clearhead.data.splits import build
    from clearhead.training.config import load_recipe
    from clearhead.training.loop import Loop
    from clearhead.training.session import train

    loaded = load_recipe(path)
    if (Path(run) / "checkpoints").exists():  # to be resumed
        loaded = replace(loaded, training=replace(loaded.training, steps=2 * STEPS, validate_every=2 * STEPS))
    first: list[float] = []

    def note(loop: Loop) -> None:
        first.append(time.perf_counter() - began)

    ready = 0.0
    if "WORLD_SIZE" not in os.environ:
        build(loaded.data, None, loaded.tokenizer)
        ready = time.perf_counter() - began
    outcome = train(loaded, run, attach=lambda splits, log: [note], quiet=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    examples = len(outcome.splits.train)
    return {"prepared": ready, "first": first[0] if first else 0.0, "peak": peak, "child": child, "examples": examples}


def nanogpt_child(path: str, run: str) -> dict[str, float]:
    """nanoGPT's prepare.py: the whole text through tiktoken, the ids to a file; then a batch of a memory map."""
    import tiktoken

    from clearhead.tokenizer import BytePair, load
    from clearhead.tokenizer.split import GPT2

    ours = load(Path(run) / "tokenizer.json")
    assert isinstance(ours, BytePair)
    began = time.perf_counter()
    ranks = {token: number - 4 for token, number in ours.vocabulary.items()}
    encoding = tiktoken.Encoding("same", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    file = Path(run) / "nanogpt.bin"
    cold = not file.exists()
    if cold:
        ids = encoding.encode_ordinary((Path(path).parent / "text").read_text())
        np.array(ids, np.uint16).tofile(file)
    mapped = np.memmap(file, np.uint16, "r")
    starts = np.random.default_rng(0).integers(0, len(mapped) - CONTEXT, 16)
    np.stack([mapped[start : start + CONTEXT] for start in starts]).astype(np.int64)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first": time.perf_counter() - began, "peak": peak, "child": 0.0}


def datasets_child(path: str, run: str) -> dict[str, float]:
    """`datasets` reads the lines, `tokenizers` encodes them in a process for each core; what they make is cached."""
    os.environ["HF_DATASETS_CACHE"] = str(Path(run) / "hf")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import datasets  # type: ignore[import-untyped,import-not-found,unused-ignore]
    from tokenizers import Tokenizer

    datasets.disable_progress_bars()
    began = time.perf_counter()
    found = datasets.load_dataset("text", data_files=str(Path(path).parent / "text"), split="train")
    cores = len(os.sched_getaffinity(0))
    ours = json.loads((Path(run) / "tokenizer.json").read_text())
    written = json.dumps(ours.get("tokenizer", ours))

    def encode(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": [one.ids for one in Tokenizer.from_str(written).encode_batch(rows["text"])]}

    mapped = found.map(encode, batched=True, batch_size=5000, remove_columns=["text"], num_proc=cores)
    mapped.with_format("numpy")[:16]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"first": time.perf_counter() - began, "peak": peak, "child": child}


CHILDREN = {"train": train_child, "nanogpt": nanogpt_child, "datasets": datasets_child}


class ChildFailed(Exception):
    """A measurement that ended without a figure, and what it said."""


def child(name: str, path: Path, run: Path, cores: int = 2, processes: int = 1, cache: Path | None = None) -> dict:
    """Run one of CHILDREN on so many cores; what it measured."""
    command = [sys.executable, "-m", "bench.corpus", "--child", name, str(path), str(run)]
    if processes > 1:
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "-m", "bench.corpus"),
            *("--child", name, str(path), str(run)),
        ]
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    environment = {**os.environ, "CLEARHEAD_CACHE": str(cache or run / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, preexec_fn=lambda: os.sched_setaffinity(0, allowed)
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise ChildFailed(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return max(lines, key=lambda one: one["first"])


# ---- what is measured of a corpus, and the tables ------------------------------------------------------------------

STEPS_OF = {"text": ("one", "two", "warm", "resumed", "ranks", "nanogpt", "datasets"),
            "pairs": ("one", "two", "warm", "resumed", "ranks")}  # fmt: skip


def measure(folder: Path, kind: str, step: str) -> dict[str, Any]:
    """A step of a corpus; those after `two` need its cache."""
    path, run = recipe(folder, kind), folder / f"run-{kind}"

    def fresh(name: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return folder / name

    match step:
        case "one":
            return child("train", path, fresh("one"), cores=1)
        case "two":
            return child("train", path, fresh(run.name))
        case "warm":
            return child("train", path, fresh("again"), cache=run / "cache")
        case "resumed":
            return child("train", path, folder / "again", cache=run / "cache")
        case "ranks":
            return child("train", path, fresh("ranks"), processes=2)
        case _:
            (run / "nanogpt.bin").unlink(missing_ok=True)
            shutil.rmtree(run / "hf", ignore_errors=True)
            cold, warm = child(step, path, run), child(step, path, run)
            return {**cold, "warm": warm["first"]}


def table(figures: dict[str, dict[str, Any]]) -> str:
    """Figures by "size kind", each by step."""
    steps = ("one", "prepared"), ("two", "prepared"), ("two", "first"), ("warm", "first"), ("resumed", "first")
    columns = (*steps, ("ranks", "first"), ("two", "peak"), ("two", "child"), ("warm", "peak"))
    lines = ["| corpus | prepared, 1 core, s | 2 cores | ratio | first update, cold | warm | resumed | 2 ranks, cold "
             "| peak MB, cold | a worker's | warm |", "|---" * 11 + "|"]  # fmt: skip
    peers = ["| text | clearhead cold, s | warm | nanoGPT's way cold | warm | peak MB | datasets cold | warm "
             "| peak MB | a worker's |", "|---" * 10 + "|"]  # fmt: skip
    for name, found in figures.items():
        cells = [
            f"{found[step][key]:,.{0 if key in ('peak', 'child') else 1}f}" if step in found else ""
            for step, key in columns
        ]
        ratio = f"{found['one']['prepared'] / found['two']['prepared']:.2f}" if {"one", "two"} <= found.keys() else ""
        lines.append("| " + " | ".join([name, *cells[:2], ratio, *cells[2:]]) + " |")
        if {"nanogpt", "datasets"} & found.keys():
            beside = [("nanogpt", "first"), ("nanogpt", "warm"), ("nanogpt", "peak"), ("datasets", "first")]
            beside += [("datasets", "warm"), ("datasets", "peak"), ("datasets", "child")]
            more = [
                f"{found[step][key]:,.{0 if key in ('peak', 'child') else 1}f}" if step in found else ""
                for step, key in beside
            ]
            peers.append("| " + " | ".join([name.removesuffix(" text"), cells[2], cells[3], *more]) + " |")
    return "\n".join([*lines, "", *peers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 50], metavar="MB")
    parser.add_argument("--kinds", nargs="+", default=["text", "pairs"], choices=list(STEPS_OF))
    parser.add_argument("--steps", nargs="+", default=list(STEPS_OF["text"]), choices=("corpus", *STEPS_OF["text"]))
    parser.add_argument("--folder", type=Path, help="keep corpora and figures here")
    parser.add_argument("--child", nargs=3, metavar=("NAME", "RECIPE", "RUN"))
    chosen = parser.parse_args()
    if chosen.child:
        name, path, run = chosen.child
        Path(run).mkdir(parents=True, exist_ok=True)
        print(json.dumps(CHILDREN[name](path, run)), flush=True)
        return
    from clearhead.machine import machine

    print(machine())
    with tempfile.TemporaryDirectory() as made:
        kept = chosen.folder or Path(made)
        note = kept / "figures.json"
        figures: dict[str, dict[str, Any]] = json.loads(note.read_text()) if note.exists() else {}
        for size in chosen.sizes:
            folder = kept / str(size)
            if not (folder / "t").exists():
                write_corpus(folder, size)
            for kind in chosen.kinds:
                found = figures.setdefault(f"{size} MB {kind}", {})
                for step in STEPS_OF[kind]:
                    if step in chosen.steps and step not in found:
                        try:
                            found[step] = measure(folder, kind, step)
                        except ChildFailed as error:
                            print(f"{size} MB {kind}, {step}: left out: {error}", file=sys.stderr)
                            continue
                        print(f"{size} MB {kind}, {step}: {found[step]}", flush=True)
                        note.write_text(json.dumps(figures, indent=1))
            if not chosen.folder:
                shutil.rmtree(folder)
        print("\n" + table(figures))


if __name__ == "__main__":
    main()
