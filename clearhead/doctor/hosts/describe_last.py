"""Three more host models described to the doctor: capped scores, labels shifted inside, a stream without padding.

They and their bugs were written without looking at the probes, when these stood. `reference` variants add known-good
outputs of the healthy host, which few people have.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.doctor.hosts import capped, shifted, unpadded
from clearhead.doctor.hosts.describe_others import PAIR, Modules, with_reference

HEALTHY: Modules = {"capped": capped, "shifted": shifted, "unpadded": unpadded}


def capped_model(modules: Modules, sliding_every: int, window: int | None) -> CausalLM:
    host = modules["capped"]

    def build(vocab: int = 61, width: int = 24, heads: int = 4, kv_heads: int = 2, layers: int = 2,
              dropout: float = 0.1) -> Any:  # fmt: skip
        config = host.CappedConfig(vocab, width, heads, kv_heads, layers, sliding_every=sliding_every, dropout=dropout)
        return host.CappedLM(config)

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache = host.DynamicCache() if cache is None else cache
        return model(tokens, cache=cache), cache

    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real),
        pad=host.PAD,
        left_padded=True,
        positions="rotary",
        window=window,
        tied=True,
        cached=cached,
        reorder=lambda cache, rows: cache.reorder(rows),
        generate=lambda model, tokens, count, real=None: model.generate(tokens, count, real),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        paths={"blocks of queries": lambda model, tokens, real=None: model(tokens, real, q_block=4)},
        loss=lambda model, tokens: host.mean_loss(model, tokens),
        reduction="mean",
        optimizer=host.build_optimizer,
        update=host.update,
        clip=host.GRAD_CLIP,
        learning_rate=host.learning_rate,
        warmup=host.WARMUP_STEPS - 1,
        steps=host.TOTAL_STEPS,
    )


def capped_plain(modules: Modules) -> CausalLM:
    """As it is by default: layers 0, 2, ... slide, layers 1, 3, ... see everything."""
    return capped_model(modules, sliding_every=2, window=None)


def capped_window(modules: Modules) -> CausalLM:
    """Every layer slides, as in Mistral."""
    return capped_model(modules, sliding_every=1, window=modules["capped"].CappedConfig().sliding_window)


def shifted_model(host: Any) -> Callable[..., Any]:
    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 128,
              dropout: float = 0.1) -> Any:  # fmt: skip
        config = host.ShiftedConfig(
            vocab_size=vocab, d_model=width, num_heads=heads, num_layers=layers, ffn_dim=4 * width,
            max_positions=max_length, dropout=dropout, attention_dropout=dropout, activation_dropout=dropout,
        )  # fmt: skip
        return host.ShiftedForConditionalGeneration(config)

    return build


def described(modules: Modules, eos: int | None) -> EncoderDecoder:
    host = modules["shifted"]

    def from_labels(model: Any, source: Tensor, target: Tensor) -> Tensor:
        """The decoder's inputs are made by the model, of labels that begin one token later."""
        labels = torch.cat([target[:, 1:], target[:, -1:]], dim=1)  # the last label is never read
        labels = labels.masked_fill(labels.eq(host.PAD), host.IGNORE)
        return model(source, labels=labels, start=target[:, 0])[0]

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        # decode takes all tokens so far: they say which of the past's keys are padding
        encoded, past, read = (model.encode(source), None, target[:, :0]) if state is None else state
        tokens = torch.cat([read, target], dim=1)
        logits, past = model.decode(tokens, encoded, past)
        return logits, (encoded, past, tokens)

    def reorder(state: Any, rows: Tensor) -> Any:
        (hidden, mask), past, read = state
        return (hidden[rows], mask[rows]), host.reorder_cache(past, rows), read[rows]

    return EncoderDecoder(
        build=shifted_model(host),
        forward=lambda model, source, target: model(source, target)[0],
        pad=host.PAD,
        pad_by_id=True,
        positions="absolute",
        tied=True,
        paths={"labels shifted by the model": from_labels},
        cached=cached,
        reorder=reorder,
        generate=lambda model, source, start, count: model.generate(source, start, count, eos),
        loss=lambda model, source, target: host.batch_loss(model, source, target),
        label_smoothing=host.SMOOTHING,
        reduction="mean",
        optimizer=host.build_optimizer,
        update=host.training_step,
        clip=host.MAX_GRAD_NORM,
        learning_rate=host.inverse_sqrt,
        warmup=host.WARMUP - 1,
        steps=1000,
    )


def shifted_plain(modules: Modules) -> EncoderDecoder:
    """No token ends a row, so that generation can be held to the full pass at every step."""
    return described(modules, eos=None)


def shifted_ending(modules: Modules) -> EncoderDecoder:
    """As people run it: EOS ends a row, and what follows is padding."""
    return described(modules, eos=modules["shifted"].EOS)


def unpadded_model(host: Any, causal: bool) -> Callable[..., Any]:
    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.Unpadded(host.Config(vocab, width, heads, layers, max_length, dropout, causal))

    return build


def by_document(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
    return model(tokens, real, varlen=True)


def unpadded_mlm(modules: Modules) -> Encoder:
    host = modules["unpadded"]
    return Encoder(
        build=unpadded_model(host, False),
        forward=lambda model, tokens, real=None: model(tokens, real),
        pad=host.PAD,
        positions="rotary",
        tied=True,
        paths={"varlen": by_document},
        loss=host.masked_loss,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=host.update,
        clip=host.MAX_NORM,
        learning_rate=host.learning_rate,
        warmup=host.WARMUP - 1,
        steps=host.STEPS,
    )


def unpadded_causal(modules: Modules) -> CausalLM:
    host = modules["unpadded"]
    return CausalLM(
        build=unpadded_model(host, True),
        forward=lambda model, tokens, real=None: model(tokens, real),
        pad=host.PAD,
        left_padded=True,
        positions="rotary",
        tied=True,
        paths={"varlen": by_document},
        cached=lambda model, tokens, cache: model.cached(tokens, cache),
        reorder=host.reorder,
        generate=lambda model, tokens, count, real=None: host.generate(model, tokens, count, real),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        loss=lambda model, tokens: host.causal_loss(model, tokens),
        reduction="sum",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.update(model, optimizer, [(b,) for b in batches]),
        clip=host.MAX_NORM_OF_SUM,
        learning_rate=host.learning_rate,
        warmup=host.WARMUP - 1,
        steps=host.STEPS,
    )


ROW = (torch.arange(3, 25).view(2, 11),)
VARIANTS: dict[str, dict[str, Callable[[Modules], Description]]] = {
    "capped": {
        "plain": capped_plain,
        "window": capped_window,
        "reference": with_reference(capped_plain, ROW, {"layers": 2, "width": 48, "heads": 6, "kv_heads": 3}, HEALTHY),
    },
    "shifted": {
        "plain": shifted_plain,
        "ending": shifted_ending,
        "reference": with_reference(
            shifted_plain, PAIR, {"layers": 2, "width": 24, "heads": 3, "max_length": 32}, HEALTHY
        ),
    },
    "unpadded": {"mlm": unpadded_mlm, "causal": unpadded_causal},
}
