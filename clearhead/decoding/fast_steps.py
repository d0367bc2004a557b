"""The fast twin of `ModelSteps`: the same logits from a prepared copy of the model, whose beams share their keys.

`FastDecoding(model).steps(...)` gives the fastest steps that are right for the model as it is at that moment: with
shared keys if all of its decoder is ours and untouched, one row a beam with prepared matrices if some of it is not, and
plain `ModelSteps` where there is nothing to prepare (other devices, 16-bit weights, plain kernels, a trace).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearhead.decoding.int8 import Precision, prepared_int8
from clearhead.decoding.prepared import Preparer, is_our_decoder
from clearhead.decoding.shared_cache import SharedCache
from clearhead.decoding.steps import ModelSteps, Steps, left_pad, read_source
from clearhead.model import DecoderOnly, EncoderDecoder, KVCache
from clearhead.model.trace import recording


class FastDecoding:
    """Holds what preparing a model made, for the next batch."""

    def __init__(self, model: EncoderDecoder | DecoderOnly, precision: Precision = "float32") -> None:
        self.model = model
        self.prepare = Preparer(prepared_int8) if precision == "int8" else Preparer()

    def steps(self, source: Tensor | None = None, source_real: Tensor | None = None) -> Steps:
        """Decoding steps for a batch of sources, or for prompts."""
        weight = self.model.embedding.weight
        able = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
        empty = source_real is not None and not bool(source_real.any(-1).all())  # nothing to look at gives zeros
        if not able or empty or self.model.config.kernels == "plain" or recording():
            return ModelSteps(self.model, source, source_real)
        if is_our_decoder(self.model):
            return SharedSteps(self.model, self.prepare(self.model, merge=True), source, source_real)
        return ModelSteps(self.prepare(self.model, merge=False), source, source_real)


class SharedSteps:
    """Decoding steps in which the beams of a sentence stand side by side; see `Steps` for what the methods promise."""

    def __init__(
        self,
        model: EncoderDecoder | DecoderOnly,  # as it is: reads sources and prompts
        prepared: EncoderDecoder | DecoderOnly,  # its copy: goes on from there
        source: Tensor | None,
        source_real: Tensor | None,
    ) -> None:
        self.model, self.prepared = model, prepared
        self.rows, self.width = 0, 1
        self.memory, self.source_real = read_source(model, source, source_real), source_real

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        tokens, real = left_pad(prompts)
        self.rows = len(prompts)
        like = self.model.embedding.weight
        if tokens.size(1) == 1:
            self.cache = SharedCache(self.model.config, self.rows, like)
            return self.step(tokens[:, 0])
        cache = KVCache(self.model.config, self.rows, tokens.size(1))
        hidden = self._hidden(self.model, tokens, None if bool(real.all()) else real, cache)
        self.cache = SharedCache(self.model.config, self.rows, like, cache)
        return self.prepared.head(hidden[:, -1])

    def step(self, tokens: Tensor) -> Tensor:
        hidden = self._hidden(self.prepared, tokens.view(-1, self.width), None, self.cache)
        return self.prepared.head(hidden.flatten(0, 1))

    def _hidden(self, model: Any, tokens: Tensor, real: Tensor | None, cache: KVCache | SharedCache) -> Tensor:
        if self.memory is None:
            return model.hidden(tokens, real, cache=cache)
        return model.decode(tokens, self.memory, self.source_real, real, cache)

    def widen(self, width: int) -> None:
        self.rows, self.width = self.rows * width, width
        self.cache.widen(width)

    def select(self, rows: Tensor) -> None:
        self.rows = rows.numel()
        beams = rows.view(-1, self.width)
        sentences = beams[:, 0] // self.width
        before = self.cache.batch
        self.cache.select(sentences, beams % self.width)
        if self.memory is not None and len(sentences) != before:
            self.memory = self.memory[sentences]
            self.source_real = None if self.source_real is None else self.source_real[sentences]
