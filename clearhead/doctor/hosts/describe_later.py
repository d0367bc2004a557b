"""Three further host models described to the doctor: relative biases, parallel blocks with a ring, heads in the batch.

They and their bugs were written without looking at the probes, when these stood. `reference` variants add known-good
outputs of the healthy host, which few people have.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.doctor.hosts import folded, parallel, relative
from clearhead.doctor.hosts.describe_others import PAIR, Modules, with_reference

HEALTHY: Modules = {"relative": relative, "parallel": parallel, "folded": folded}


def relative_plain(modules: Modules) -> EncoderDecoder:
    host = modules["relative"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, dropout: float = 0.1) -> Any:
        config = host.RelativeConfig(vocab, width, heads, layers, 2 * width, dropout)
        return host.RelativeForConditionalGeneration(config)

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        encoder, past = (model.encode(source), None) if state is None else state
        output = model.decode(target, encoder, past)
        return output.logits, (encoder, output.past)

    def reorder(state: Any, rows: Tensor) -> Any:
        encoder, past = state
        chosen = host.EncoderOutput(encoder.last_hidden_state[rows], encoder.attention_mask[rows])
        return chosen, past.reorder(rows)

    return EncoderDecoder(
        build=build,
        forward=lambda model, source, target: model(source, target),
        pad=host.PAD,
        pad_by_id=True,
        positions="relative",
        scaled=False,
        tied=True,
        cached=cached,
        reorder=reorder,
        generate=lambda model, source, start, count: model.generate(source, start, count),
        loss=lambda model, source, target: host.batch_loss(model, source, target),
        label_smoothing=host.EPSILON,
        reduction="mean",
        optimizer=host.build_optimizer,
        update=lambda model, optimizer, batches: host.Trainer(model, optimizer).update(batches),
        clip=host.MAX_NORM,
        learning_rate=host.rsqrt_schedule,
        warmup=host.WARMUP - 1,
        steps=1000,
    )


def parallel_plain(modules: Modules) -> CausalLM:
    host = modules["parallel"]

    def build(vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.ParallelLM(host.Shape(vocab, width, heads, kv_heads, layers, dropout=dropout))

    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real)[0],
        pad=host.PAD,
        left_padded=True,
        positions="rotary",
        window=host.Shape().window,
        tied=False,
        cached=lambda model, tokens, ring: model(tokens, ring=ring),
        reorder=lambda ring, rows: ring.rows(rows),
        generate=lambda model, tokens, count, real=None: host.generate(model, tokens, count, real),
        packed=lambda model, tokens, documents: model(tokens, documents=documents)[0],
        loss=lambda model, tokens: host.mean_loss(model, tokens),
        reduction="mean",
        optimizer=host.make_optimizer,
        update=host.update,
        clip=host.MAX_GRAD,
        learning_rate=host.learning_rate,
        warmup=host.WARM - 1,
        steps=host.TOTAL,
    )


def folded_model(host: Any, prefix: int | None) -> Callable[..., Any]:
    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.FoldedModel(vocab, width, heads, layers, max_length, dropout, prefix)

    return build


def folded_mlm(modules: Modules) -> Encoder:
    host = modules["folded"]

    def mean(model: Any, tokens: Tensor, labels: Tensor) -> Tensor:
        loss, size = host.masked_lm_criterion(model, tokens, labels)
        return loss / size

    return Encoder(
        build=folded_model(host, None),
        forward=lambda model, tokens: model(tokens)[0],
        pad=host.PAD,
        pad_by_id=True,
        positions="absolute",
        tied=True,
        loss=mean,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=host.train_step,
        clip=host.CLIP_NORM,
        learning_rate=host.polynomial_decay,
        warmup=host.WARMUP_UPDATES - 1,
        steps=host.MAX_UPDATE,
    )


def folded_lm(modules: Modules, prefix: int, never: tuple[int, ...]) -> CausalLM:
    host = modules["folded"]

    def mean(model: Any, tokens: Tensor) -> Tensor:
        loss, size = host.prefix_lm_criterion(model, tokens)
        return loss / size

    def cached(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        state = {} if state is None else state
        return model(tokens, state)[0], state

    return CausalLM(
        build=folded_model(host, prefix),
        forward=lambda model, tokens: model(tokens)[0],
        pad=host.PAD,
        pad_by_id=True,
        positions="absolute",
        prefix=prefix,
        tied=True,
        cached=cached,
        reorder=host.reorder_incremental_state,
        generate=lambda model, tokens, count: model.generate(tokens, count, never),
        loss=mean,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.train_step(model, optimizer, [(b,) for b in batches]),
        clip=host.CLIP_NORM,
        learning_rate=host.polynomial_decay,
        warmup=host.WARMUP_UPDATES - 1,
        steps=host.MAX_UPDATE,
    )


def folded_causal(modules: Modules) -> CausalLM:
    """With a prefix of one token it is an ordinary causal model."""
    return folded_lm(modules, prefix=1, never=())


def folded_prefix(modules: Modules) -> CausalLM:
    """As people would run it: three tokens of prefix, and generation that never says padding."""
    return folded_lm(modules, prefix=3, never=(modules["folded"].PAD,))


ROW = (torch.arange(3, 25).view(2, 11),)
VARIANTS: dict[str, dict[str, Callable[[Modules], Description]]] = {
    "relative": {"plain": relative_plain, "reference": with_reference(relative_plain, PAIR, {"layers": 2}, HEALTHY)},
    "parallel": {"plain": parallel_plain, "reference": with_reference(parallel_plain, ROW, {"layers": 2}, HEALTHY)},
    "folded": {
        "mlm": folded_mlm,
        "causal": folded_causal,
        "prefix": folded_prefix,
        "mlm-reference": with_reference(folded_mlm, ROW, {"layers": 2, "max_length": 32}, HEALTHY),
        "causal-reference": with_reference(folded_causal, ROW, {"layers": 2, "max_length": 32}, HEALTHY),
    },
}
