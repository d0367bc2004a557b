"""Do exported runs give the same in the other programs? Same tokens, and log-probabilities how far apart?

    python -m bench.export RUN [TEXTS]      an encoder-decoder; a file of sources, or 1,000 dates kept from training

Each program loads what `clearhead export` wrote for it and translates greedily with the folder's own tokenizer.
Seconds are for all texts at once and are there for orientation only: nothing is repeated or interleaved.
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.data.dates import Dates, divide_dates, divide_forms, write_dates
from clearhead.data.forms import LOCALES
from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.interop.export import FORMATS, export
from clearhead.machine import machine

Written = list[tuple[list[int], list[float]]]  # for each text its tokens, and their log-probabilities
MARKS = [["<pad>"], ["<s>"]]


@dataclass(frozen=True)
class Agreement:
    """How a program's translations compare with ours."""

    program: str
    same: int  # texts with the same tokens
    texts: int
    furthest: float  # the largest difference of log-probabilities of those, over all tokens
    seconds: float
    refused: str = ""  # why the run could not be exported there


def held_out_dates(loaded: LoadedModel, count: int = 1000) -> list[str]:
    """Dates that training never saw, as people write them."""
    dates: Dates = write_dates(count, divide_dates()[2], divide_forms(LOCALES).seen, loaded.tokenizer, stream=99)
    return [example.source for example in dates.examples()]


def compare(run: Path, texts: list[str], folder: Path, formats: tuple[Any, ...] = FORMATS) -> list[Agreement]:
    """Export to each format into `folder`, translate the texts there, and compare with ours."""
    loaded = load(run)
    start = time.perf_counter()
    ours = [(one.tokens, one.log_probs[: len(one.tokens)]) for one in loaded.translate(texts, beam_size=1)]
    result = [Agreement("clearhead", len(texts), len(texts), 0.0, time.perf_counter() - start)]
    for name in formats:
        try:
            export(run, folder / name, name)
        except InputError as error:
            result.append(Agreement(name, 0, len(texts), 0.0, 0.0, str(error)))
            continue
        limit = max(len(loaded.source(text)[0]) for text in texts) + loaded.settings.max_extra
        start = time.perf_counter()
        theirs = PROGRAMS[name](folder / name, texts, limit)
        took = time.perf_counter() - start
        alike = [(mine[1], other[1]) for mine, other in zip(ours, theirs, strict=True) if mine[0] == other[0]]
        apart = [abs(a - b) for mine, other in alike for a, b in zip(mine, other, strict=True)]
        result.append(Agreement(name, len(alike), len(texts), max(apart, default=0.0), took))
    return result


# ---- the programs ----------------------------------------------------------------------------------------------------


def by_numpy(folder: Path, texts: list[str], limit: int) -> Written:
    spec = importlib.util.spec_from_file_location("exported", folder / "model.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return [
        cut([token for token, _ in found], [p for _, p in found]) for text in texts if (found := [*script.write(text)])
    ]


def words_of(folder: Path) -> Any:
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.encode_special_tokens = True
    return words


def by_ctranslate2(folder: Path, texts: list[str], limit: int) -> Written:
    import ctranslate2

    words, translator = words_of(folder), ctranslate2.Translator(str(folder), compute_type="float32")
    sources = [words.encode(text).tokens for text in texts]
    told = {"beam_size": 1, "min_decoding_length": 0, "max_decoding_length": limit, "suppress_sequences": MARKS}
    made = [one.hypotheses[0] for one in translator.translate_batch(sources, **told)]
    scores = translator.score_batch(sources, made)
    return [
        ([words.token_to_id(token) for token in tokens], list(score.log_probs[: len(tokens)]))
        for tokens, score in zip(made, scores, strict=True)
    ]


def by_onnx(folder: Path, texts: list[str], limit: int) -> Written:
    """All texts as one batch, padded; a row that has ended goes on, and what it writes is cut off."""
    import onnxruntime

    encoder, decoder = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    ids = [words.ids for words in words_of(folder).encode_batch(texts)]
    source = np.array([[*row, *[0] * (max(map(len, ids)) - len(row))] for row in ids])
    real = np.array([[place < len(row) for place in range(source.shape[1])] for row in ids])
    memory = encoder.run(None, {"source": source, "source_real": real})
    given = dict(zip(("memory_keys", "memory_values"), memory, strict=True))
    layers, _, heads, _, width = given["memory_keys"].shape
    keys = values = np.zeros((layers, len(texts), heads, 0, width), np.float32)
    last = np.full((len(texts), 1), 1)
    tokens: list[Any] = []
    log_probs: list[Any] = []
    while len(tokens) < limit and not (np.array(tokens) == 2).any(0).all():
        inputs = {"target": last, "source_real": real, **given, "past_keys": keys, "past_values": values}
        logits, keys, values = decoder.run(None, inputs)
        scores = log_softmax(logits[:, -1])
        logits[..., [0, 1]] = -np.inf
        last = logits[:, -1].argmax(-1)[:, None]
        tokens.append(last[:, 0])
        log_probs.append(np.take_along_axis(scores, last, 1)[:, 0])
    rows = zip(np.array(tokens).T.tolist(), np.array(log_probs).T.tolist(), strict=True)
    return [cut(*row) for row in rows]


def by_transformers(folder: Path, texts: list[str], limit: int) -> Written:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    kind = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    model = getattr(transformers, kind).from_pretrained(folder)
    inputs = words(texts, return_tensors="pt", padding=True)
    made = model.generate(**inputs, max_new_tokens=limit, return_dict_in_generate=True, output_logits=True)
    tokens = made.sequences[:, 1:].tolist()
    scores = np.stack([log_softmax(step.numpy()) for step in made.logits], 1)  # (B, S, V)
    return [
        cut(row, [float(scores[n, place, token]) for place, token in enumerate(row)]) for n, row in enumerate(tokens)
    ]


PROGRAMS: dict[str, Callable[[Path, list[str], int], Written]] = {
    "numpy": by_numpy,
    "ctranslate2": by_ctranslate2,
    "onnx": by_onnx,
    "transformers": by_transformers,
}


def cut(tokens: list[int], log_probs: list[float], end: int = 2) -> tuple[list[int], list[float]]:
    """What was written before the end."""
    length = tokens.index(end) if end in tokens else len(tokens)
    return tokens[:length], log_probs[:length]


def log_softmax(logits: Any) -> Any:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run = Path(sys.argv[1])
    texts = Path(sys.argv[2]).read_text().splitlines() if len(sys.argv) == 3 else held_out_dates(load(run))
    print(f"{run}, {len(texts):,} texts, greedy; {machine()}\n")
    with tempfile.TemporaryDirectory() as folder:
        print("| program | same tokens | log-probabilities within | seconds |\n|---|---|---|---|")
        for one in compare(run, texts, Path(folder)):
            same = one.refused or f"{one.same:,} of {one.texts:,}"
            print(f"| {one.program} | {same} | {one.furthest:.1e} | {one.seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
