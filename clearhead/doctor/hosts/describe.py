"""The host models described to the doctor, healthy or with a bug in them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder, Reference
from clearhead.doctor.hosts import (
    decoder,
    describe_blind,
    describe_last,
    describe_later,
    describe_others,
    encoder,
    loop,
    seq2seq,
)

# how tokens come in: the host modules stay as they are, or one of them is replaced by its broken twin
Modules = dict[str, Any]
HEALTHY: Modules = {
    "decoder": decoder,
    "encoder": encoder,
    "seq2seq": seq2seq,
    "loop": loop,
    **describe_others.HEALTHY,
    **describe_blind.HEALTHY,
    **describe_later.HEALTHY,
    **describe_last.HEALTHY,
}


def reference(build: Callable[..., Any], module: Any, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Reference]:
    """What the healthy model gives, with weights large enough that every part of it matters."""
    sizes = {"max_length": 32, "layers": 2}

    def known_good() -> Reference:
        torch.manual_seed(11)
        model = build(**sizes, module=module).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=parameter.size(-1) ** -0.5)
            return Reference(model.state_dict(), inputs, model(*inputs), sizes)

    return known_good


def causal(modules: Modules, **fixed: Any) -> CausalLM:
    host, training = modules["decoder"], modules["loop"]
    window = fixed.get("window")

    def build(vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2,
              max_length: int = 1024, dropout: float = 0.1, module: Any = host) -> Any:  # fmt: skip
        return module.Decoder(module.Config(vocab, width, heads, kv_heads, layers, max_length, dropout, **fixed))

    def cached(model: Any, tokens: torch.Tensor, cache: Any) -> tuple[torch.Tensor, Any]:
        cache = host.Cache(window) if cache is None else cache
        return model(tokens, cache=cache), cache

    tokens = torch.arange(3, 25).view(2, 11)
    positions = fixed.get("positions", "rotary")
    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real),
        pad=training.PAD,
        left_padded=True,
        positions="absolute" if positions == "learned" else positions,
        tied=fixed.get("tied", True),
        window=window,
        cached=cached,
        reorder=lambda cache, rows: cache.reorder(rows),
        generate=lambda model, tokens, count: model.generate(tokens, count),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        reference=reference(build, decoder, (tokens,)),
        loss=lambda model, tokens: training.causal_loss(model, tokens),
        label_smoothing=training.SMOOTHING,
        reduction="mean",
    )


def with_loop(modules: Modules, optimizer: str = "make_optimizer") -> CausalLM:
    """The decoder with the whole training loop described."""
    training, plain = modules["loop"], causal(modules)
    return CausalLM(
        build=plain.build,
        forward=plain.forward,
        pad=training.PAD,
        loss=plain.loss,
        label_smoothing=training.SMOOTHING,
        reduction="mean",
        optimizer=getattr(training, optimizer),
        update=training.update,
        clip=training.CLIP,
        learning_rate=training.learning_rate,
        warmup=training.WARMUP - 1,
        steps=1000,
    )


def two_paths(modules: Modules) -> CausalLM:
    """The decoder with its written-out attention, and the fused kernel as a second path of the same weights."""
    from dataclasses import replace

    def fused(model: Any, tokens: torch.Tensor) -> torch.Tensor:
        blocks = [block.attention for block in model.blocks]
        for attention in blocks:
            attention.config = replace(attention.config, fused=True)
        try:
            return model(tokens)
        finally:
            for attention in blocks:
                attention.config = replace(attention.config, fused=False)

    return replace(causal(modules), paths={"fused": fused})


def tagger(modules: Modules, padded: bool = True) -> Encoder:
    host, training = modules["encoder"], modules["loop"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 1024,
              dropout: float = 0.1, module: Any = host) -> Any:  # fmt: skip
        return module.Encoder(module.Config(vocab, width, heads, layers, max_length, dropout))

    forward: Callable[..., Any] = lambda model, tokens, real=None: model(tokens, real)  # noqa: E731
    if not padded:
        forward = lambda model, tokens: model(tokens)  # noqa: E731
    return Encoder(
        build=build,
        forward=forward,
        positions="absolute",
        reference=reference(build, encoder, (torch.arange(3, 25).view(2, 11),)),
        pad=training.PAD if padded else None,
        loss=(lambda model, tokens, labels: training.tagging_loss(model, tokens, labels)) if padded else None,
        label_smoothing=training.SMOOTHING if padded else 0.0,
        reduction="mean",
    )


def translator(modules: Modules) -> EncoderDecoder:
    host, training = modules["seq2seq"], modules["loop"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1, module: Any = host) -> Any:  # fmt: skip
        return module.Seq2Seq(module.Config(vocab, width, heads, layers, max_length, dropout))

    def cached(model: Any, source: torch.Tensor, target: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        state = {} if state is None else state
        return model.decode(model.encode(source), target, state=state), state

    inputs = (torch.arange(3, 21).view(2, 9), torch.arange(30, 44).view(2, 7))
    return EncoderDecoder(
        build=build,
        forward=lambda model, source, target, source_real=None, target_real=None: model(
            source, target, source_real, target_real
        ),
        pad=training.PAD,
        positions="absolute",
        tied=True,
        cached=cached,
        reorder=lambda state, rows: host.reorder(state, rows),
        generate=lambda model, source, start, count: model.generate(source, start, count),
        reference=reference(build, seq2seq, inputs),
        loss=lambda model, source, target: training.translation_loss(model, source, target),
        label_smoothing=training.SMOOTHING,
        reduction="mean",
    )


VARIANTS: dict[str, dict[str, Callable[[Modules], Description]]] = {
    "decoder": {
        "rotary": causal,
        "learned": lambda modules: causal(modules, positions="learned"),
        "alibi": lambda modules: causal(modules, positions="alibi"),
        "window": lambda modules: causal(modules, window=4),
        "experts": lambda modules: causal(modules, experts=3),
        "fused": lambda modules: causal(modules, fused=True),
        "untied": lambda modules: causal(modules, tied=False),
        "two-paths": two_paths,
    },
    "encoder": {"plain": tagger, "unpadded": lambda modules: tagger(modules, padded=False)},
    "seq2seq": {"plain": translator},
    "loop": {
        "decoder": causal,
        "seq2seq": translator,
        "tagger": tagger,
        "loop": with_loop,
        "finetune": lambda modules: with_loop(modules, optimizer="adapt"),
    },
    **describe_others.VARIANTS,
    **describe_blind.VARIANTS,
    **describe_later.VARIANTS,
    **describe_last.VARIANTS,
}


def describe(host: str, variant: str, broken: ModuleType | None = None) -> Description:
    """The description of a host in one of its variants, with one of its modules replaced by a broken twin."""
    modules = HEALTHY if broken is None else {**HEALTHY, host: broken}
    return VARIANTS[host][variant](modules)
