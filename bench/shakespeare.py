"""Time to a validation loss of 1.88 on tiny Shakespeare, ours against nanoGPT's CPU configuration, in one run.

`make bench-shakespeare`. The peer is that configuration written down again with `nn.Linear`, `nn.LayerNorm` and
`scaled_dot_product_attention`: 4 layers, 4 heads, 128 wide, context 64, batch 12, 2,000 steps, AdamW(0.9, 0.99) from
1e-3 to 1e-4 by cosine after 100 steps of warm-up, decay 0.1, clip 1, no dropout, random windows of the first 90% of the
text. Ours is the recipe `shakespeare`. Both are scored on all non-overlapping windows of 64 characters of the last 10%.
Only training is timed, not scoring, and both sides are scored after the same share of their steps. The sides take turns
in slices of their steps, because a shared machine drifts; processor time stands beside the time on the clock, because
on a busy machine it is the steadier of the two.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.data.files import data_folder
from clearhead.data.splits import build as build_data
from clearhead.data.windows import NextTokens
from clearhead.machine import machine
from clearhead.model import build
from clearhead.training.config import load_recipe
from clearhead.training.distributed import Ranks
from clearhead.training.loop import Loop, seed_of
from clearhead.training.validate import evaluate

TARGET = 1.88
LAYERS, HEADS, WIDTH, CONTEXT, BATCH, STEPS = 4, 4, 128, 64, 12, 2000


class PeerLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Peer(nn.Module):
    """nanoGPT's model at its CPU size."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(PeerLayer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * LAYERS) if deep else 0.02)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@dataclass
class Side:
    """One contestant: how to do one update, how to score, how many updates in all, on how many threads."""

    name: str
    update: Callable[[int], None]
    score: Callable[[], float]
    steps: int
    threads: int
    seconds: float = 0.0
    processor: float = 0.0  # seconds of all threads
    curve: list[tuple[int, float, float]] = field(default_factory=list)  # step, seconds, loss
    reached: tuple[float, float] | None = None  # seconds, and of the processor

    def slice(self, start: int, end: int) -> None:
        torch.set_num_threads(self.threads)
        began, busy = time.perf_counter(), time.process_time()
        for step in range(start + 1, end + 1):
            self.update(step)
        self.seconds, self.processor = (
            self.seconds + time.perf_counter() - began,
            self.processor + time.process_time() - busy,
        )
        loss = self.score()
        self.curve.append((end, self.seconds, loss))
        if loss <= TARGET and self.reached is None:
            self.reached = (self.seconds, self.processor)
        times = f"{self.seconds:7.1f} s  (processor {self.processor:6.1f} s)"
        print(f"  {self.name:<28} step {end:>5}  {times}  validation {loss:.4f}", flush=True)


def peer_side(ids: Tensor, cut: int, vocabulary: int, threads: int) -> Side:
    torch.manual_seed(1337)
    model = Peer(vocabulary)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.99), fused=True,
    )  # fmt: skip
    train, held_out = ids[:cut], ids[cut:]
    draw = torch.Generator().manual_seed(1)

    def update(step: int) -> None:
        rate = 1e-3 * step / 100
        if step > 100:
            rate = 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + math.cos(math.pi * (step - 100) / (STEPS - 100)))
        starts = torch.randint(len(train) - CONTEXT - 1, (BATCH,), generator=draw)
        windows = torch.stack([train[start : start + CONTEXT + 1] for start in starts])
        loss = model(windows[:, :-1], windows[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()

    @torch.no_grad()
    def score() -> float:
        windows = (len(held_out) - 1) // CONTEXT
        inputs = held_out[: windows * CONTEXT].view(windows, CONTEXT)
        labels = held_out[1 : windows * CONTEXT + 1].view(windows, CONTEXT)
        losses = [model(a, b) * len(a) for a, b in zip(inputs.split(128), labels.split(128), strict=True)]
        return float(sum(losses)) / windows

    return Side("nanoGPT's CPU configuration", update, score, STEPS, threads)


def our_side(threads: int) -> Side:
    recipe = load_recipe("shakespeare")
    splits = build_data(recipe.data, None, recipe.tokenizer)
    torch.manual_seed(seed_of(recipe.training.seed, "weights"))
    config = recipe.model_config(splits.train.kind, splits.train.head, splits.tokenizer.size)
    loop = Loop(build(config), splits.train, recipe.training)
    # whole windows only, as for the peer: a rest shorter than the context would be easier or harder, not the same
    assert isinstance(splits.validation, NextTokens)
    whole = range(int(splits.validation.lengths.sum()) // CONTEXT)
    batches = [list(whole)[i : i + 128] for i in range(0, len(whole), 128)]
    return Side(
        "recipe shakespeare",
        lambda step: loop.one_update(),
        lambda: evaluate(loop.objective, splits.validation, batches, Ranks())["loss"],
        recipe.training.steps,
        threads,
    )


def best_threads(make: Callable[[int], Side]) -> int:
    """The faster of one and two threads, over a few updates of a side of its own."""
    seconds: dict[int, float] = {}
    for threads in (1, 2, 1, 2):
        side = make(threads)
        torch.set_num_threads(threads)
        side.update(1)
        began = time.perf_counter()
        for step in range(2, 12):
            side.update(step)
        seconds[threads] = min(seconds.get(threads, math.inf), time.perf_counter() - began)
    return min(seconds, key=seconds.__getitem__)


def main() -> None:
    text = (data_folder() / "tinyshakespeare" / "input.txt").read_text()
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    ids = torch.tensor([letters[letter] for letter in text])
    cut = int(0.9 * len(text))

    def make_peer(threads: int) -> Side:
        return peer_side(ids, cut, len(letters), threads)

    parser = argparse.ArgumentParser()
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--threads", type=int, help="for both sides, instead of the better of one and two for each")
    options = parser.parse_args()
    print(machine(), flush=True)
    sides = [make(options.threads or best_threads(make)) for make in (our_side, make_peer)]
    for side in sides:
        print(f"{side.name}: {side.steps} steps on {side.threads} thread{'s' * (side.threads > 1)}")
    slices = options.slices
    for number in range(slices):
        for side in sides:
            side.slice(side.steps * number // slices, side.steps * (number + 1) // slices)
    ours, peer = sides
    for side in sides:
        best = min(loss for _, _, loss in side.curve)
        reached = "not reached" if side.reached is None else "after {:.1f} s (processor {:.1f} s)".format(*side.reached)
        print(f"{side.name}: {TARGET} {reached}; best {best:.4f}; in all {side.seconds:.1f} s ({side.processor:.1f} s)")
    if ours.reached is not None:
        shares = ours.reached[0] / peer.seconds, ours.reached[1] / peer.processor
        print(f"ours reaches {TARGET} in {shares[0]:.2f} of the peer's full time ({shares[1]:.2f} of processor time)")


if __name__ == "__main__":
    main()
