"""The KV cache: what a token costs with and without it, and how much memory it takes.

Without a cache, each new token is paid for by reading all earlier ones again. With it, only the new token is projected,
but its query still meets every key that is kept. The cache lives in the decoder, a room for keys and one for values in
each layer, and its size is layers · 2 · length · kv_heads · d_head numbers: grouped-query heads are there to shrink it.
"""

import statistics
import time

import torch
from matplotlib.figure import Figure

from clearhead.decoding.steps import ModelSteps
from clearhead.lab.drawing import lines, panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.lab.training import small
from clearhead.model import DecoderOnly
from clearhead.training.loop import seed_of

ARMS = {
    "no cache": "the whole text is read again for each token",
    "8 kv heads": "cache, a key/value head for each of 8 query heads",
    "2 kv heads": "cache, 4 query heads share a key/value head",
    "1 kv head": "cache, all query heads share one",
}
VOCABULARY = 256


def build_model(arm: str, seed: int, sizes: Sizes) -> DecoderOnly:
    torch.manual_seed(seed_of(seed, "weights"))
    heads = 8 if arm == "no cache" else int(arm.split()[0])
    width = sizes["width"]
    config = small(
        VOCABULARY,
        kind="decoder",
        d_model=width,
        heads=8,
        kv_heads=heads,
        d_ff=4 * width,
        decoder_layers=sizes["layers"],
    )
    return DecoderOnly(config).eval()


@torch.inference_mode()
def cost_at(model: DecoderOnly, length: int, cached: bool, seed: int, tokens: int) -> tuple[float, float]:
    """Seconds (median) and cache bytes for each token written after a text of this length."""
    torch.manual_seed(seed_of(seed, length))
    prompt = torch.randint(0, VOCABULARY, (length,)).tolist()
    steps = ModelSteps(model, cached=cached)
    logits = steps.start([prompt])
    seconds = []
    for _ in range(tokens):
        chosen = logits.argmax(-1)
        started = time.perf_counter()
        logits = steps.step(chosen)
        seconds.append(time.perf_counter() - started)
    if steps.cache is None:
        return statistics.median(seconds), 0.0
    kept = [layer.all() for layer in steps.cache.self_attention]
    held = sum(t.numel() * t.element_size() for pair in kept for t in pair)
    return statistics.median(seconds), held / steps.cache.length


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
    model, cached = build_model(arm, seed, sizes), arm != "no cache"
    cost_at(model, 16, cached, seed, 3)  # warm-up
    found = [cost_at(model, length, cached, seed, sizes["tokens"]) for length in sizes["lengths"]]
    milliseconds = [1000 * second for second, _ in found]
    return {
        "time_milliseconds": [*milliseconds],
        "time_last": milliseconds[-1],
        "time_growth": milliseconds[-1] / milliseconds[0],
        "bytes": found[-1][1],
        "disagreement": disagreement(model, seed) if cached else 0.0,
    }


def verdict(results: Results) -> Verdict:
    lengths = results.sizes["lengths"]
    without, cached = results.interval("no cache", "time_growth"), results.interval("8 kv heads", "time_growth")
    gain = results.mean("no cache", "time_last") / results.mean("8 kv heads", "time_last")
    saved = results.mean("8 kv heads", "bytes") / results.mean("1 kv head", "bytes")
    sentence = (
        f"from {lengths[0]} to {lengths[-1]} tokens of text, the next one costs {without.mean:.1f} times as much "
        f"without "
        f"a cache and {cached.mean:.1f} times with it; at {lengths[-1]} the cache is {gain:.0f} times faster. It holds "
        f"{results.mean('8 kv heads', 'bytes'):,.0f} bytes a token, {saved:.0f} times less with one key/value head"
    )
    if without.low <= cached.high:
        return Verdict("cannot tell at this size", sentence)
    if cached.low > 2:
        return Verdict(
            "holds only if", f"the text is short enough for attention over the kept keys not to count: {sentence}"
        )
    return Verdict("holds", sentence)


def figure(results: Results) -> Figure:
    drawn, axes = panels(2)
    lengths = results.sizes["lengths"]
    times = {arm: results.curve(arm, "time_milliseconds") for arm in ARMS}
    lines(axes[0], lengths, times, "tokens of text so far", "time for the next token (ms)", "Time", "xy")
    held = {
        arm: [type(v)(*(length * value / 2**20 for value in v)) for length in lengths]
        for arm in ARMS
        if arm != "no cache" and (v := results.interval(arm, "bytes"))
    }
    lines(axes[1], lengths, held, "tokens of text so far", "memory of the cache (MiB)", "Memory", "xy", [*ARMS])
    return drawn


EXPERIMENT = Experiment(
    number=12,
    name="kv-cache",
    claim="The KV cache makes the cost of a token independent of the text before it, and pays with memory.",
    arms=ARMS,
    measured="Time to write one more token after texts of several lengths (median over tokens, one thread), bytes kept "
    "for each token, and the largest difference between cached and uncached logits.",
    rule="Growth is the time at the longest text over that at the shortest. Without a cache it must exceed the growth "
    "with one beyond both intervals, otherwise it cannot be told. If the interval of growth with the cache lies "
    "above 2, "
    "the claim holds only if texts are short; otherwise it holds.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 3, "width": 128, "layers": 2, "lengths": (32, 128, 512, 1024), "tokens": 8},
    full={"seeds": 5, "width": 256, "layers": 4, "lengths": (32, 128, 512, 1024, 2048, 4096), "tokens": 12},
    columns={
        "time_last": "time per token at the longest text (ms)",
        "time_growth": "growth from the shortest text",
        "bytes": "cache (bytes per token)",
        "disagreement": "largest difference from the full pass (logits)",
    },
    timed=True,
)
