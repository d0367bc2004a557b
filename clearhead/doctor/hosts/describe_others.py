"""Three more host models described to the doctor: sequence first, functional, and padding found by its id.

They are in other people's styles, to try the doctor on what it was not made around. `plain` tells what the author of
such a model could tell; `reference` adds known-good outputs, which few people have.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from clearhead.doctor.describe import CausalLM, Description, EncoderDecoder, Reference
from clearhead.doctor.hosts import by_id, functional, sequence_first
from clearhead.doctor.results import outputs

Modules = dict[str, Any]
HEALTHY: Modules = {"sequence_first": sequence_first, "functional": functional, "by_id": by_id}


def sequence_first_translator(modules: Modules) -> EncoderDecoder:
    """Axes are turned here: the doctor is batch first, this model is not."""
    host = modules["sequence_first"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.Transformer(vocab, width, heads, layers, max_length, dropout)

    def forward(
        model: Any, source: Tensor, target: Tensor, source_real: Tensor | None = None, target_real: Tensor | None = None
    ) -> Tensor:
        logits, _ = model(source.t(), target.t(), source_real, target_real)
        return logits.transpose(0, 1)

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        state = model.encode(source.t()) if state is None else state
        logits, _, state = model.decode(target.t(), state)
        return logits.transpose(0, 1), state

    def generate(model: Any, source: Tensor, start: Tensor, count: int, source_real: Tensor | None = None) -> Tensor:
        return model.greedy(source.t(), start.t(), count, source_real).t()

    def update(model: Any, optimizer: Any, batches: Any) -> float:
        return host.train_step(model, optimizer, [(source.t(), target.t()) for source, target in batches])

    return EncoderDecoder(
        build=build,
        forward=forward,
        pad=host.PAD,
        positions="absolute",
        tied=True,
        cached=cached,
        reorder=lambda state, rows: state.rows(rows),
        generate=generate,
        loss=lambda model, source, target: host.seq2seq_loss(model, source.t(), target.t()),
        label_smoothing=host.SMOOTHING,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=update,
        clip=host.MAX_NORM,
        learning_rate=host.rate,
        warmup=host.WARMUP - 1,
        steps=1000,
    )


def functional_gpt(modules: Modules) -> CausalLM:
    host = modules["functional"]

    def build(vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.GPT(host.Shape(vocab, width, kv_heads, heads // kv_heads, layers, dropout))

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        out = model(tokens, cache)
        return out.logits, (out.keys, out.values)

    return CausalLM(
        build=build,
        forward=lambda model, tokens, real=None: model(tokens, real=real),
        pad=host.PAD,
        left_padded=True,
        positions="rotary",
        tied=True,
        cached=cached,
        reorder=lambda cache, rows: host.reorder(cache, rows),
        generate=lambda model, tokens, count, real=None: host.generate(model.params, model.shape, tokens, count, real),
        packed=lambda model, tokens, documents: model(tokens, documents=documents),
        loss=lambda model, tokens: host.mean_loss(model, tokens),
        reduction="mean",
        optimizer=host.make_optimizer,
        update=host.step,
        clip=host.CLIP,
        learning_rate=host.learning_rate,
        warmup=host.WARMUP - 1,
        steps=host.STEPS,
    )


def translator_by_id(modules: Modules) -> EncoderDecoder:
    """The doctor's masks become what this model understands: the padding id in their place."""
    host = modules["by_id"]

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> Any:  # fmt: skip
        return host.Translator(vocab, vocab, width, heads, layers, max_length, dropout)

    def pad(tokens: Tensor, real: Tensor | None, token: int) -> Tensor:
        return tokens if real is None else tokens.masked_fill(~real, token)

    def forward(
        model: Any, source: Tensor, target: Tensor, source_real: Tensor | None = None, target_real: Tensor | None = None
    ) -> Tensor:
        source, target = pad(source, source_real, host.SOURCE_PAD), pad(target, target_real, host.TARGET_PAD)
        return model(source, target)["logits"]

    def generate(model: Any, source: Tensor, start: Tensor, count: int, source_real: Tensor | None = None) -> Tensor:
        return model.generate(pad(source, source_real, host.SOURCE_PAD), start, count)

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        if state is None:
            state = {"encoded": model.encode(source), "decoder": model.start()}
        return model.decode(state["encoded"], target, state["decoder"]), state

    def reorder(state: Any, rows: Tensor) -> Any:
        encoded = {name: tensor[rows] for name, tensor in state["encoded"].items()}
        return {"encoded": encoded, "decoder": host.reorder_state(state["decoder"], rows)}

    return EncoderDecoder(
        build=build,
        forward=forward,
        pad=(host.SOURCE_PAD, host.TARGET_PAD),
        tied=True,
        positions="absolute",
        cached=cached,
        reorder=reorder,
        generate=generate,
        loss=lambda model, source, target: host.mean_loss(model, source, target),
        label_smoothing=host.SMOOTHING,
        reduction="mean",
        optimizer=host.make_optimizer,
        update=lambda model, optimizer, batches: host.Trainer(model, optimizer).update(batches),
        clip=host.CLIP,
        learning_rate=host.inverse_sqrt,
        warmup=host.WARMUP - 1,
        steps=1000,
    )


def with_reference(
    describe: Callable[[Modules], Description],
    inputs: tuple[Tensor, ...],
    sizes: dict[str, int],
    modules: Modules = HEALTHY,
) -> Callable[[Modules], Description]:
    """The same description, and what the healthy model gives with weights large enough that every part matters."""

    def known_good() -> Reference:
        healthy = describe(modules)
        torch.manual_seed(17)
        model = healthy.build(**sizes).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(mean=float(parameter.dim() == 1), std=parameter.size(-1) ** -0.5)
            return Reference(model.state_dict(), inputs, outputs(healthy.forward(model, *inputs)), sizes)

    return lambda modules: replace(describe(modules), reference=known_good)


PAIR = (torch.arange(3, 21).view(2, 9), torch.arange(30, 44).view(2, 7))
VARIANTS: dict[str, dict[str, Callable[[Modules], Description]]] = {
    "sequence_first": {
        "plain": sequence_first_translator,
        "reference": with_reference(sequence_first_translator, PAIR, {"layers": 2, "max_length": 32}),
    },
    "functional": {
        "plain": functional_gpt,
        "reference": with_reference(functional_gpt, (torch.arange(3, 25).view(2, 11),), {"layers": 2}),
    },
    "by_id": {
        "plain": translator_by_id,
        "reference": with_reference(translator_by_id, PAIR, {"layers": 2, "max_length": 32}),
    },
}
