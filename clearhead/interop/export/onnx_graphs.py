"""What is exported to ONNX: our models as functions of tensors alone, the cache among them.

A graph has no objects that remember, so what the decoder keeps of earlier tokens goes in and comes out as tensors of
(layers, B, G, T, d). `torch.export` follows the plain code, since fused kernels choose by length and a graph cannot;
for the same reason the mask of a window is always there.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model import DecoderOnly, EncoderDecoder, EncoderOnly, ModelConfig, Transformer, build
from clearhead.model.attention_inputs import AttentionInputs, AttentionInputsBuilder
from clearhead.model.cache import AttentionCache, KVCache, LayerCache
from clearhead.model.masks import combine, window_mask
from clearhead.model.positions import token_positions


class GivenAttentionCache(AttentionCache):
    """Keys and values of earlier tokens, or of a source, as they were given: (B, G, T, d) each."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.length = 1  # anything but none: of a source, all keys are there

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        return self.all()

    def all(self) -> tuple[Tensor, Tensor]:
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values


class GivenCache(KVCache):
    """The cache of a whole decoder from tensors of (layers, B, G, T, d)."""

    def __init__(
        self,
        past: tuple[Tensor, Tensor],  # keys and values of the tokens before
        memory: tuple[Tensor, Tensor] | None = None,  # of the source
        real: Tensor | None = None,  # (B, T + S): which tokens are, those before and the new ones
    ) -> None:
        self.self_attention = [GivenAttentionCache(k, v) for k, v in zip(*past, strict=True)]
        crossing: list[GivenAttentionCache | None] = [None] * len(self.self_attention)
        if memory is not None:
            crossing = [GivenAttentionCache(k, v) for k, v in zip(*memory, strict=True)]
        pairs = zip(self.self_attention, crossing, strict=True)
        self.layers = [LayerCache(own, cross) for own, cross in pairs]
        self.real, self.before = real, past[0].size(3)

    def admit(
        self, tokens: Tensor, real: Tensor | None, documents: Tensor | None
    ) -> tuple[Tensor, Tensor | None, bool]:
        if self.real is None:
            return torch.arange(self.before + tokens.size(1))[None], None, True
        return token_positions(tokens, self.real), self.real[:, None, None, :], True

    def stacked(self) -> tuple[Tensor, Tensor]:
        keys, values = zip(*(attention.all() for attention in self.self_attention), strict=True)
        return torch.stack(keys), torch.stack(values)


class AlwaysWindowed(AttentionInputsBuilder):
    """The mask of a window is made whether or not the text is longer than that."""

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__(config, causal)
        self.reach, self.window = config.window, None

    def forward(
        self,
        tokens: Tensor,
        like: Tensor,
        real: Tensor | None = None,
        documents: Tensor | None = None,
        cache: KVCache | None = None,
        side: str = "",
    ) -> AttentionInputs:
        inputs = super().forward(tokens, like, real, documents, cache, side)
        keys = token_positions(tokens, real) if cache is None else cache.admit(tokens, real, documents)[0]
        assert inputs.positions is not None
        assert self.reach is not None
        return replace(inputs, may_attend=combine(inputs.may_attend, window_mask(inputs.positions, keys, self.reach)))


def exportable(model: Transformer) -> Any:
    """The same model in plain code, without choices that depend on the length of a text."""
    config = replace(model.config, kernels="plain")
    with torch.random.fork_rng(devices=[]):
        twin: Any = build(config)
    twin.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    for stack in ("encoder", "decoder"):
        if config.window is not None and hasattr(twin, stack):
            getattr(twin, stack).attention_inputs = AlwaysWindowed(config, causal=stack == "decoder")
    return twin.eval()


# ---- the graphs ------------------------------------------------------------------------------------------------------


class Encode(nn.Module):
    """A source, and which of its tokens are real, to the keys and values that the decoder looks at."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_real: Tensor) -> tuple[Tensor, Tensor]:
        memory = self.model.encode(source, source_real)
        keys, values = [], []
        for layer in self.model.decoder.layers:
            cross: Any = layer.cross_attention
            keys.append(cross.split_heads(cross.key(memory), cross.key_value_heads))
            values.append(cross.split_heads(cross.value(memory), cross.key_value_heads))
        return torch.stack(keys), torch.stack(values)


class Decode(nn.Module):
    """New tokens of the target, to the logits of the token after each; `past` is what came out the time before."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        target: Tensor,
        source_real: Tensor,
        memory_keys: Tensor,
        memory_values: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache = GivenCache((past_keys, past_values), (memory_keys, memory_values))
        memory = memory_keys[0].transpose(1, 2).flatten(2)  # only its batch and length are looked at
        hidden = self.model.decode(target, memory, source_real, cache=cache)
        return self.model.head(hidden), *cache.stacked()


class Continue(nn.Module):
    """New tokens of a text, to the logits of the token after each; `past` is what came out the time before."""

    def __init__(self, model: DecoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, real: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        cache = GivenCache((past_keys, past_values), real=real)
        return self.model.head(self.model.hidden(tokens, cache=cache)), *cache.stacked()


class Read(nn.Module):
    """Tokens to hidden states, and to what the head makes of them."""

    def __init__(self, model: EncoderOnly) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.model.hidden(tokens, real)
        return hidden, self.model.head(hidden, real).clone()  # without a head they are the same, but still two outputs
