"""Our own models described to the doctor, in any configuration: it examines them as it does anyone's.

`clearhead doctor clearhead.interop.doctor:describe` examines the tiny preset. The doctor knows nothing of our models;
what it needs to know is said here: how to build one in other sizes, how to run it, and what it promises.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.data.batch import IGNORE
from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.model import ModelConfig, build, configure
from clearhead.model.cache import KVCache
from clearhead.training.loss import summed_loss

PAD = 0
SMOOTHING = 0.1
POSITIONS = {"sinusoidal": "absolute", "learned": "absolute", "rope": "rotary", "alibi": "alibi", "none": "none"}


def resized(config: ModelConfig, sizes: dict[str, Any]) -> ModelConfig:
    """The same choices in the sizes the doctor asks for."""
    layers, rate = sizes["layers"], sizes["dropout"]
    shared = sizes["kv_heads"] if config.kv_heads is not None else None
    # a table of positions is as long as the doctor's inputs; other kinds have no length
    length = sizes["max_length"] if config.positions.kind == "learned" else None
    return replace(
        config,
        vocab_size=sizes["vocab"],
        d_model=sizes["width"],
        heads=sizes["heads"],
        kv_heads=shared,
        d_ff=4 * sizes["width"],
        encoder_layers=layers,
        decoder_layers=layers,
        positions=replace(config.positions, max_length=length),
        dropout=replace(config.dropout, residual=rate, embedding=rate, attention=rate, hidden=rate),
    )


def mean_loss(model: Any, hidden: Tensor, labels: Tensor) -> Tensor:
    labels = labels.masked_fill(labels == PAD, IGNORE)
    return summed_loss(model, hidden, labels, SMOOTHING) / (labels != IGNORE).sum()


def describe(config: ModelConfig | None = None) -> Description:
    """The description of our model in this configuration (default: the tiny preset), for `doctor.check`."""
    config = configure("tiny") if config is None else config

    def builder(
        vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2, max_length: int = 640,
        dropout: float = 0.1,
    ) -> torch.nn.Module:  # fmt: skip
        sizes = {"vocab": vocab, "width": width, "heads": heads, "kv_heads": kv_heads, "layers": layers}
        return build(resized(config, {**sizes, "max_length": max_length, "dropout": dropout}))

    shared: dict[str, Any] = {
        "name": f"clearhead {config.kind}",
        "build": builder,
        "pad": PAD,
        "positions": POSITIONS.get(config.positions.kind),  # a kind it does not know is not asked about
        "window": config.window,
        "label_smoothing": SMOOTHING,
    }
    if config.kind == "encoder":
        return Encoder(**shared, **tagging(config))
    shared |= {"tied": config.head.tied, "reorder": reorder}
    if config.kind == "decoder":
        return CausalLM(**shared, **continuing())
    return EncoderDecoder(**shared, **translating())


def reorder(state: Any, rows: Tensor) -> Any:
    cache = state[1] if isinstance(state, tuple) else state
    cache.reorder(rows)
    return (state[0].index_select(0, rows), cache) if isinstance(state, tuple) else cache


def continuing() -> dict[str, Any]:
    """How a decoder-only model runs, decodes, packs and learns."""

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = KVCache(model.config, tokens.size(0), capacity=4) if cache is None else cache
        return model(tokens, cache=cache), cache

    return {
        "forward": lambda model, tokens, real=None: model(tokens, real),
        "cached": cached,
        "packed": lambda model, tokens, documents: model(tokens, documents=documents),
        "loss": lambda model, tokens: mean_loss(model, model.hidden(tokens[:, :-1]), tokens[:, 1:]),
    }


def translating() -> dict[str, Any]:
    """How an encoder-decoder runs, decodes and learns."""

    def forward(
        model: Any,
        source: Tensor,
        target: Tensor,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
    ) -> Tensor:
        return model(source, target, source_real, target_real)

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        memory, cache = state or (model.encode(source), KVCache(model.config, target.size(0), capacity=4))
        return model.head(model.decode(target, memory, cache=cache)), (memory, cache)

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        return mean_loss(model, model.hidden(source, target[:, :-1], source != PAD), target[:, 1:])

    return {"forward": forward, "cached": cached, "loss": loss}


def tagging(config: ModelConfig) -> dict[str, Any]:
    """How an encoder runs; with a head over the vocabulary it also has a loss."""
    if config.head.kind == "pooled":
        # one vector a sequence says nothing of its tokens: the states before it do
        return {"forward": lambda model, tokens, real=None: model.hidden(tokens, real)}
    forward = {"forward": lambda model, tokens, real=None: model(tokens, real)}
    if config.head.kind != "masked":
        return forward
    return forward | {
        "loss": lambda model, tokens, labels: mean_loss(model, model.hidden(tokens, tokens != PAD), labels)
    }
