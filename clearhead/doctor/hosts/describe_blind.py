"""The last three host models described to the doctor: a fused decoder, an encoder-decoder of pairs, a stack for both.

They and their bugs were written without looking at the probes, when these stood. `reference` variants add known-good
outputs of the healthy host, which few people have.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.doctor.hosts import fused, pairs, unified
from clearhead.doctor.hosts.describe_others import PAIR, Modules, with_reference

HEALTHY: Modules = {"fused": fused, "pairs": pairs, "unified": unified}


def fused_plain(modules: Modules) -> CausalLM:
    host = modules["fused"]

    def build(vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2,
              max_length: int = 640, dropout: float = 0.1) -> Any:  # fmt: skip
        return host.Transformer(host.ModelArgs(vocab, width, layers, heads, kv_heads, max_seq_len=max_length,
                                               dropout=dropout))  # fmt: skip

    def cached(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        if state is None:
            state = (host.KVCache(model.args, tokens.size(0), model.output.weight.dtype), 0)
        cache, start = state
        logits, _ = model(tokens, start, cache)
        return logits, (cache, start + tokens.size(1))

    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real=real),
        pad=host.PAD_ID,
        left_padded=True,
        positions="rotary",
        tied=False,
        cached=cached,
        reorder=lambda state, rows: (state[0].select(rows), state[1]),
        generate=lambda model, tokens, count, real=None: model.generate(tokens, count, real),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        loss=lambda model, tokens: host.lm_loss(model, tokens),
        reduction="mean",
        optimizer=host.configure_optimizer,
        update=host.train_step,
        clip=host.GRAD_CLIP,
        learning_rate=host.get_lr,
        warmup=host.WARMUP_STEPS - 1,
        steps=host.MAX_STEPS,
    )


def pairs_plain(modules: Modules) -> EncoderDecoder:
    host = modules["pairs"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.Seq2Seq(vocab, width, heads, layers, max_length, dropout)

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        memory, bias, past = (*model.encode(source), None) if state is None else state
        out = model.decode(target, memory, bias, past=past)
        return out["logits"], (memory, bias, out["past"])

    def reorder(state: Any, rows: Tensor) -> Any:
        memory, bias, past = state
        return memory[rows], None if bias is None else bias[rows], host.reorder_past(past, rows)

    return EncoderDecoder(
        build=build,
        forward=lambda model, *given: model(*given)["logits"],
        pad=host.PAD,
        positions="absolute",
        tied=True,
        cached=cached,
        reorder=reorder,
        generate=lambda model, source, start, count, source_real=None: model.generate(
            source, start, count, source_real, eos=None
        ),
        loss=lambda model, source, target: host.batch_loss(model, source, target),
        label_smoothing=host.EPSILON,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.Trainer(model, optimizer).step(batches),
        clip=host.MAX_NORM,
        learning_rate=host.inverse_sqrt,
        warmup=host.WARMUP_UPDATES - 1,
        steps=1000,
    )


def unified_lm(modules: Modules) -> CausalLM:
    host = modules["unified"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, dropout: float = 0.1) -> Any:
        return host.Model(host.Config(vocab, width, heads, layers, dropout, window=5))

    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real=real),
        paths={"written out": lambda model, tokens, real=None: model(tokens, real=real, fused=False)},
        pad=host.PAD,
        positions="alibi",
        window=5,
        tied=True,
        cached=lambda model, tokens, cache: model(tokens, cache=cache),
        reorder=lambda cache, rows: cache.take(rows),
        generate=lambda model, tokens, count: model.continue_text(tokens, count),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        loss=lambda model, tokens: host.next_token_loss(model, tokens),
        reduction="mean",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.training_step(model, optimizer, [(b,) for b in batches]),
        clip=host.CLIP,
        learning_rate=host.factor,
        warmup=host.WARMUP - 1,
        steps=host.TOTAL,
    )


def unified_mlm(modules: Modules) -> Encoder:
    host = modules["unified"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, dropout: float = 0.1) -> Any:
        return host.Model(host.Config(vocab, width, heads, layers, dropout, causal=False))

    def ignored(labels: Tensor) -> Tensor:
        """The doctor marks labels that do not count by the padding id, this host by IGNORE."""
        return labels.masked_fill(labels == host.PAD, host.IGNORE)

    return Encoder(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real=real),
        paths={"written out": lambda model, tokens, real=None: model(tokens, real=real, fused=False)},
        pad=host.PAD,
        positions="alibi",
        tied=True,
        loss=lambda model, tokens, labels: host.masked_token_loss(model, tokens, ignored(labels)),
        reduction="mean",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.training_step(
            model, optimizer, [(tokens, ignored(labels)) for tokens, labels in batches]
        ),
        clip=host.CLIP,
        learning_rate=host.factor,
        warmup=host.WARMUP - 1,
        steps=host.TOTAL,
    )


ROW = (torch.arange(3, 25).view(2, 11),)
SHORT = {"layers": 2, "max_length": 32}
VARIANTS: dict[str, dict[str, Callable[[Modules], Description]]] = {
    "fused": {"plain": fused_plain, "reference": with_reference(fused_plain, ROW, SHORT, HEALTHY)},
    "pairs": {"plain": pairs_plain, "reference": with_reference(pairs_plain, PAIR, SHORT, HEALTHY)},
    "unified": {
        "lm": unified_lm,
        "mlm": unified_mlm,
        "lm-reference": with_reference(unified_lm, ROW, {"layers": 2}, HEALTHY),
        "mlm-reference": with_reference(unified_mlm, ROW, {"layers": 2}, HEALTHY),
    },
}
