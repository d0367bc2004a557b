"""The decoder, the tied head, and the whole Transformer."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Bug, Draw, Exercise, Make, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.decoder import CROSS, MISTAKES
from clearhead.learn.pictures import heat

SMALL = {"B": 2, "S": 4, "T": 5, "H": 2, "d": 3, "F": 5, "V": 7, "padded": 1}
EQUAL = {**SMALL, "B": 4, "S": 4, "T": 4}
PADDED, SQUARE = "padding in the source", "a target as long as its source"
TWICE = "then another batch, without padding"


def states(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return draw.normal(sizes.B, sizes.S, sizes.D), draw.normal(sizes.B, sizes.T, sizes.D)


def states_and_real(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return *states(sizes, draw), draw.real(sizes)


def tokens(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return draw.integers(0, sizes.V, sizes.B, sizes.T), draw.integers(0, sizes.V, sizes.B, sizes.S)


def tokens_and_real(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return *tokens(sizes, draw), draw.real(sizes)


def source_and_real(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return draw.integers(0, sizes.V, sizes.B, sizes.T), draw.real(sizes)


def target_and_memory(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return (
        draw.integers(0, sizes.V, sizes.B, sizes.S),
        draw.normal(sizes.B, sizes.T, sizes.D),
        draw.real(sizes),
    )


def decoder_layer(run: Run, x: Tensor, memory: Tensor, real: Tensor | None = None) -> Any:
    module = run.module("DecoderLayer", run.sizes.D, run.sizes.H, run.sizes.F, 0.1)
    causal = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril()
    return module(x, memory, causal) if real is None else module(x, memory, causal, real[:, None, None, :])


def decoder(run: Run, x: Tensor, memory: Tensor, real: Tensor | None = None) -> Any:
    module = run.module("Decoder", 2, run.sizes.D, run.sizes.H, run.sizes.F, 0.1)
    return module(x, memory) if real is None else module(x, memory, real)


def decoder_twice(run: Run, x: Tensor, memory: Tensor, real: Tensor) -> Any:
    """The same module again, on something else: nothing may be left over from the first time."""
    module = run.module("Decoder", 2, run.sizes.D, run.sizes.H, run.sizes.F, 0.1)
    return module(x, memory, real), module(x + 1, memory)


def built(run: Run) -> Any:
    return run.module("Transformer", run.sizes.V, run.sizes.D, run.sizes.H, run.sizes.F, 1, 0.1)


def encode(run: Run, source: Tensor, real: Tensor) -> Any:
    """What padding itself becomes is nobody's business."""
    model = built(run)
    return [model.encode(source), model.encode(source, real)[real]]


def decode(run: Run, target: Tensor, memory: Tensor, real: Tensor) -> Any:
    model = built(run)
    return [model.decode(target, memory), model.decode(target, memory, real)]


def forward(run: Run, source: Tensor, target: Tensor, real: Tensor | None = None) -> Any:
    return built(run)(source, target) if real is None else built(run)(source, target, real)


def vectors_kept(run: Run) -> dict[str, Any] | None:
    """In training, how much of what the first layer reads is dropped? `vectors` drops once, at the model's rate."""
    model = run.Transformer(run.sizes.V, 64, 2, 8, 1, 0.5).train()
    read: list[Tensor] = []
    for stack in (model.encoder, model.decoder):
        stack.register_forward_pre_hook(
            lambda module, arguments, named: read.append(arguments[0] if arguments else named["x"]), with_kwargs=True
        )
    tokens = torch.zeros(4, 16, dtype=torch.long)
    torch.manual_seed(0)
    model(tokens, tokens)
    shares = [(x == 0).double().mean().item() for x in read]
    if all(share < 0.6 for share in shares):
        return None
    return {
        "called": "Transformer(…, dropout=0.5).train()(source, target)",
        "got": f"{max(shares):.0%} of what a stack reads is dropped",
        "wanted": "about 50%: `vectors` has dropped already",
        "kind": "dropout",
    }


def trial(part: str, make: Make, call: Any, what: str, shown: str, sizes: Mapping[str, int] = SMALL) -> Trial:
    return Trial(part, make, call, what, sizes, shown=shown)


def picture(parts: Mapping[str, Any]) -> str:
    """Where the target's tokens look before any training: how far a source token moves each of their logits."""
    torch.manual_seed(3)
    model = parts["Transformer"](20, 16, 2, 32, 1, 0.0).eval()
    source, target = torch.arange(6)[None] + 3, torch.arange(5)[None] + 9
    with torch.no_grad():
        before = model(source, target)
        rows = []
        for place in range(6):
            other = source.clone()
            other[0, place] = 18
            rows.append((model(other, target) - before)[0].norm(dim=-1))
    moved = torch.stack(rows, 1)  # (S, T)
    return heat(moved / moved.sum(-1, keepdim=True), "target", "source")


EXERCISE = Exercise(
    name="decoder",
    question="How does one sequence write from another?",
    about="A decoder layer has three sub-layers: the target's tokens look back at each other, then over to what the "
    "encoder made of the source (cross-attention: queries from the target, keys and values from the memory), then "
    "each works alone. One table of vectors serves three times: for the source, for the target, and as the matrix that "
    "turns states into logits.",
    section="sections 3.1, 3.2.3 and 3.4",
    shapes="""
    DecoderLayer: x (B, S, D), memory (B, T, D), may_attend (S, S) for self-attention, memory_may_attend (B, 1, 1, T)
        or None for cross-attention -> (B, S, D)
    Decoder: x (B, S, D), memory (B, T, D), source_real (B, T) or None -> (B, S, D); it hides the future and the
        source's padding from every layer
    Transformer.encode: source (B, T), source_real (B, T) or None -> memory (B, T, D)
    Transformer.decode: target (B, S), memory (B, T, D), source_real -> logits (B, S, V), by the embedding's own table
    Transformer.forward: source, target, source_real -> logits (B, S, V)
    `self.vectors(tokens)` is given: what the first layer of either stack reads, scaled, with positions and dropout.
    """,
    parts=("DecoderLayer", "Decoder", "Transformer"),
    given=("Transformer.vectors",),
    trials=(
        trial("DecoderLayer", states, decoder_layer, "no padding", "DecoderLayer(…)(x, memory)"),
        trial("DecoderLayer", states_and_real, decoder_layer, PADDED, "DecoderLayer(…)(x, memory, real)"),
        trial("DecoderLayer", states_and_real, decoder_layer, SQUARE, "DecoderLayer(…)(x, memory, real)", EQUAL),
        trial("Decoder", states, decoder, "no padding", "Decoder(2, …)(x, memory)"),
        trial("Decoder", states_and_real, decoder, PADDED, "Decoder(2, …)(x, memory, source_real)"),
        trial("Decoder", states_and_real, decoder_twice, TWICE, "Decoder(2, …)(x, memory)"),
        trial("Decoder", states_and_real, decoder, SQUARE, "Decoder(2, …)(x, memory, source_real)", EQUAL),
        trial("Transformer", source_and_real, encode, "encode, without and with real", "model.encode(source, real)"),
        trial(
            "Transformer",
            target_and_memory,
            decode,
            "decode, without and with real",
            "model.decode(target, memory, real)",
        ),
        trial("Transformer", tokens, forward, "no padding", "model(source, target)"),
        trial("Transformer", tokens_and_real, forward, PADDED, "model(source, target, source_real)"),
        trial("Transformer", tokens_and_real, forward, SQUARE, "model(source, target, source_real)", EQUAL),
    ),
    properties=(
        Property("dropout.twice", "Transformer", vectors_kept, "dropout acts twice on what is read", rejects=True),
    ),
    mistakes=MISTAKES,
    hints=(
        "Where do the keys of cross-attention come from, and whose padding is hidden from it?",
        "x (B, S, D) asks, memory (B, T, D) answers; logits (B, S, V) are states (B, S, D) times the table (V, D).",
        "`self.cross_attention(x, memory, memory_may_attend)` in its residual; `causal_mask(x.size(1))`; "
        "`hidden @ self.embedding.weight.T`",
    ),
    after="This is a whole Transformer: figure 1 of the paper, in your words. How far each source token moves each "
    "target token's logits, untrained:",
    lab="weight-tying",
    ours="clearhead/model/decoder.py",
    bug=Bug(
        "DecoderLayer",
        ((CROSS, CROSS.replace("self.cross_attention(", "self.self_attention(")),),
        "DecoderLayer(8, 2, 16, 0.0)(x, memory, causal_mask(5)).shape  # (B, S, D), as it should be",
        "self-attention's matrices did the work of cross-attention's, which were never trained; shapes cannot tell",
    ),
    picture=picture,
    seconds=20.0,
)
