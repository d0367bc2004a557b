"""The KV cache: what a token costs with and without it, and how much memory it takes.

Without a cache, each new token is paid for by reading all earlier ones again. With it, only the new token is projected,
but its query still meets every key that is kept. The cache lives in the decoder, a room for keys and one for values in
each layer, and its size is layers · 2 · length · kv_heads · d_head numbers: grouped-query heads are there to shrink it.
An encoder-decoder has a second set of rooms: the keys and values of its cross-attention, which are projected from the
source once and never grow. Without a cache these are projected again for each token, as is the whole text.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure

from clearhead.decoding.steps import ModelSteps
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
from clearhead.lab.intervals import Interval
from clearhead.lab.training import small
from clearhead.model import DecoderOnly, build
from clearhead.model.cache import AttentionCache
from clearhead.training.loop import seed_of

ARMS = {
    "no cache": "the whole text is read again for each token",
    "8 kv heads": "cache, a key/value head for each of 8 query heads",
    "2 kv heads": "cache, 4 query heads share a key/value head",
    "1 kv head": "cache, all query heads share one",
}
VOCABULARY = 256
SHORT = 32  # tokens of text, where the source is what grows


def build_model(arm: str, seed: int, sizes: Sizes, kind: str = "decoder") -> Any:
    torch.manual_seed(seed_of(seed, "weights"))
    config = small(
        VOCABULARY,
        kind=kind,
        d_model=sizes["width"],
        heads=8,
        kv_heads=8 if arm == "no cache" else int(arm.split()[0]),
        d_ff=4 * sizes["width"],
        decoder_layers=sizes["layers"],
    )
    return build(config).eval()


class Cost(NamedTuple):
    """What a token costs: milliseconds, and bytes kept for each token of the text and of the source."""

    milliseconds: float
    text_bytes: float
    source_bytes: float


@torch.inference_mode()
def cost_at(model: Any, text: int, source: int, cached: bool, seed: int, tokens: int) -> Cost:
    """The cost of each token written after a text of this length, and from a source, if there is one (median)."""
    torch.manual_seed(seed_of(seed, text, source))
    prompt = torch.randint(0, VOCABULARY, (text,)).tolist()
    steps = ModelSteps(model, torch.randint(0, VOCABULARY, (1, source)) if source else None, cached=cached)
    logits = steps.start([prompt])
    seconds = []
    for _ in range(tokens):
        chosen = logits.argmax(-1)
        started = time.perf_counter()
        logits = steps.step(chosen)
        seconds.append(time.perf_counter() - started)
    median = 1000 * statistics.median(seconds)
    if steps.cache is None:
        return Cost(median, 0.0, 0.0)
    return Cost(median, held_by(steps.cache.self_attention), held_by(steps.cache.cross_attention if source else []))


def held_by(caches: list[AttentionCache]) -> float:
    """Bytes for each token, over all layers; room that is still empty not counted."""
    kept = [(tensor, cache.length) for cache in caches for tensor in cache.all()]
    return sum(tensor.numel() * tensor.element_size() / length for tensor, length in kept)


@torch.inference_mode()
def disagreement(model: DecoderOnly, seed: int) -> float:
    """The largest difference between the logits of a full pass and of one token at a time through the cache."""
    torch.manual_seed(seed_of(seed, "tokens"))
    tokens = torch.randint(0, VOCABULARY, (1, 48))
    steps = ModelSteps(model)
    one_by_one = [steps.start([tokens[0, :1].tolist()])]
    one_by_one += [steps.step(tokens[:, place]) for place in range(1, tokens.size(1))]
    return float((model(tokens)[0] - torch.cat(one_by_one)).abs().max())


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    model, cached, tokens = build_model(arm, seed, sizes), arm != "no cache", sizes["tokens"]
    cost_at(model, 16, 0, cached, seed, 3)  # warm-up
    found = [cost_at(model, length, 0, cached, seed, tokens) for length in sizes["lengths"]]
    translator = build_model(arm, seed, sizes, "encoder-decoder")
    crossed = [cost_at(translator, SHORT, length, cached, seed, tokens) for length in sizes["lengths"]]
    return {
        "time_milliseconds": [cost.milliseconds for cost in found],
        "time_last": found[-1].milliseconds,
        "time_growth": found[-1].milliseconds / found[0].milliseconds,
        "time_crossed": [cost.milliseconds for cost in crossed],
        "time_crossed_last": crossed[-1].milliseconds,
        "bytes": found[-1].text_bytes,
        "source_bytes": crossed[-1].source_bytes,
        "disagreement": disagreement(model, seed) if cached else 0.0,
    }


LEVEL, NEARLY = 1.25, 4.0  # growth over the range of lengths: what counts as none, and as little


def independent(results: Results) -> Verdict:
    lengths = results.sizes["lengths"]
    without, cached = results.interval("no cache", "time_growth"), results.interval("8 kv heads", "time_growth")
    gain = results.mean("no cache", "time_last") / results.mean("8 kv heads", "time_last")
    sentence = (
        f"from {lengths[0]:,} to {lengths[-1]:,} tokens of text, the next one costs {cached} times as much with a "
        f"cache and {without} times without; at {lengths[-1]:,} the cache is {gain:.0f} times faster. What grows "
        "with it is the attention of one query over the keys that are kept"
    )
    if without.low <= cached.high:
        return Verdict("cannot tell at this size", sentence)
    if cached.high < LEVEL:
        return Verdict("holds", sentence)
    if cached.high < NEARLY:
        return Verdict("holds only if", f"one says nearly: {sentence}")
    return Verdict("does not hold here", sentence)


def pays(results: Results) -> Verdict:
    kept = {arm: results.mean(arm, "bytes") for arm in ARMS}
    source = results.mean("8 kv heads", "source_bytes")
    crossed = results.mean("no cache", "time_crossed_last") / results.mean("8 kv heads", "time_crossed_last")
    shown = ", ".join(f"{arm} {size:,.0f}" for arm, size in kept.items() if size)
    sentence = (
        f"bytes for each token of text: {shown}. An encoder-decoder also keeps {source:,.0f} for each token of the "
        f"source, once, and after a source of {results.sizes['lengths'][-1]:,} a token costs {crossed:.0f} times less "
        "for it"
    )
    return Verdict("holds" if kept["8 kv heads"] > 0 and source > 0 else "does not hold here", sentence)


def same(results: Results) -> Verdict:
    gap = max(results.mean(arm, "disagreement") for arm in ARMS)
    sentence = f"the largest difference between logits with and without a cache is {gap:.1e}"
    return Verdict("holds" if gap < 1e-4 else "does not hold here", sentence)


def headline(results: Results) -> str:
    last = results.sizes["lengths"][-1]
    plain, cached = results.mean("no cache", "time_last"), results.mean("8 kv heads", "time_last")
    return (
        f"After {last:,} tokens the next one takes {cached:.1f} ms with a cache and {plain:.0f} ms without; the price "
        "is memory in every layer of the decoder, for the text, which grows, and for the source, which does not."
    )


def figure(results: Results) -> Figure:
    drawn, axes = panels(4)
    lengths, label = results.sizes["lengths"], "time for the next token (ms)"
    times = results.curves(ARMS, "time_milliseconds")
    lines(axes[0], lengths, times, "tokens of text so far", label, "Decoder-only: time", "xy")
    held = {arm: kept(results.interval(arm, "bytes"), lengths) for arm in ARMS if arm != "no cache"}
    label_memory, title = "memory of the cache (MiB)", "Decoder-only: memory"
    lines(axes[1], lengths, held, "tokens of text so far", label_memory, title, "xy", [*ARMS])
    times = results.curves(ARMS, "time_crossed")
    title = f"Encoder-decoder, {SHORT} tokens of text: time"
    lines(axes[2], lengths, times, "tokens of the source", label, title, "xy")
    source = kept(results.interval("8 kv heads", "source_bytes"), [lengths[-1]] * len(lengths))
    parts = {"self-attention": kept(results.interval("8 kv heads", "bytes"), lengths), "cross-attention": source}
    title = f"Encoder-decoder, source of {lengths[-1]}: where it lives"
    lines(axes[3], lengths, parts, "tokens of text so far", label_memory, title, "xy")
    return drawn


def kept(bytes_each: Interval, lengths: Sequence[int]) -> list[Interval]:
    """Mebibytes for so many tokens."""
    return [Interval(*(length * value / 2**20 for value in bytes_each)) for length in lengths]


EXPERIMENT = Experiment(
    number=12,
    name="kv-cache",
    claim="The KV cache makes the cost of a token independent of the text before it, and pays with memory.",
    parts=(
        Part(
            "With a cache the cost of a token does not depend on the text before it.",
            "Growth is the time at the longest text over that at the shortest. Without a cache it must exceed the "
            f"growth with one beyond both intervals, otherwise it cannot be told. The interval of growth with the "
            f"cache below {LEVEL}: holds; below {NEARLY:g}: holds only if one says nearly; otherwise it does not "
            "hold here.",
            independent,
        ),
        Part("It pays with memory.", "Bytes are kept for each token of text and of source: holds.", pays),
        Part(
            "It changes nothing else.",
            "Logits with and without a cache agree within 0.0001: holds; otherwise it does not hold here.",
            same,
        ),
    ),
    arms=ARMS,
    measured="Time to write one more token after texts of several lengths (median over tokens, one thread), bytes kept "
    "for each token, and the largest difference between cached and uncached logits; for an encoder-decoder also the "
    "time and the bytes by length of the source.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 3, "width": 128, "layers": 2, "lengths": (32, 128, 512, 1024), "tokens": 8},
    full={"seeds": 5, "width": 256, "layers": 4, "lengths": (32, 128, 512, 1024, 2048, 4096), "tokens": 12},
    columns={
        "time_last": "time per token at the longest text (ms)",
        "time_growth": "growth from the shortest text",
        "time_crossed_last": "the same after the longest source, encoder-decoder (ms)",
        "bytes": "cache (bytes per token)",
        "disagreement": "largest difference from the full pass (logits)",
    },
    timed=True,
)
