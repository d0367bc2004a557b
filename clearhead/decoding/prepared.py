"""A model prepared for decoding: the same modules in the same order, with matrices stored as they are read.

A step of decoding moves one token through the decoder. The arithmetic is small, so what surrounds it decides. Here a
copy of a model is made, in which a linear map reads its matrix in the order that is fastest for the rows at hand, and
an attention that is exactly ours has its projections merged. Everything else, and the order of it all, is the model's
own code. What is not known exactly (a subclass, a hook, another attention) stays what it is, inside the copy.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from clearhead.decoding.shared_cache import SharedKeys, SourceKeys
from clearhead.model import DecoderOnly, EncoderDecoder, fused_attention
from clearhead.model.attention import MultiHeadAttention, merge_heads, split_heads
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.heads import VocabularyHead
from clearhead.model.positions import rotate

PACKABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
LARGE = 1 << 17  # numbers in a matrix: from here on oneDNN's layout pays for the cost of calling it
METHODS = ("forward", "before", "factors", "hidden", "decode", "head")  # what a pass calls of its modules
PROJECTIONS = {"query", "key", "value", "out"}
Model = TypeVar("Model", bound=EncoderDecoder | DecoderOnly)
Kind = TypeVar("Kind", bound=nn.Module)
Part = tuple[Tensor, Tensor | None, float]  # a linear map's weight and bias, and what they are multiplied by
SAMPLED = 64  # numbers of each weight that are looked at to see whether it changed


def untouched(module: nn.Module) -> bool:
    """Whether calling the module runs its class's forward and nothing else: no hook, no replaced method."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    everywhere = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    return not (hooks or everywhere) and module.__dict__.keys().isdisjoint(METHODS)


def is_plain_linear(module: object) -> bool:
    """Exactly `nn.Linear`: an adapter is a subclass, a parametrized map has a class of its own."""
    return type(module) is nn.Linear and untouched(module)


def is_our_attention(module: nn.Module) -> bool:
    """Exactly the attention of model/attention.py, with its own parts, and not dropping anything."""
    return (
        type(module) is MultiHeadAttention
        and untouched(module)
        and dict(module.named_children()).keys() == PROJECTIONS
        and all(is_plain_linear(child) for child in module.children())
        and module.attend is fused_attention
        and module.split_heads is split_heads
        and module.merge_heads is merge_heads
        and not (module.training and module.dropout)
    )


def is_known(module: nn.Module) -> bool:
    """A class of our model, or one of torch's own, and not one made of them elsewhere."""
    return type(module).__module__.startswith(("clearhead.model.", "torch.nn.modules."))


def is_our_decoder(model: EncoderDecoder | DecoderOnly) -> bool:
    """Whether everything that decoding runs is ours and untouched, so that beams may stand side by side in a row."""
    parts = [model, *model.decoder.modules(), *model.embedding.modules(), *model.output.modules()]
    return all(
        is_our_attention(part) if isinstance(part, MultiHeadAttention) else is_known(part) and untouched(part)
        for part in parts
    )


class Fingerprint:
    """Tells whether weights have changed: by where they lie, by torch's count of changes, and by a sample of their
    values for changes that torch does not count. Single numbers changed through `weight.data` may escape it."""

    def __init__(self, weights: Sequence[Tensor | None]) -> None:
        self.weights = weights
        self.stamps = [self._stamp(weight) for weight in weights]
        self.samples = [
            None if weight is None else weight.detach().reshape(-1)[:: max(1, weight.numel() // SAMPLED)]
            for weight in weights
        ]  # views of the weights, unless they are of a strange layout
        self.values = [None if sample is None else sample.clone() for sample in self.samples]

    def fits(self) -> bool:
        """Whether the weights are still what they were."""
        return self.stamps == [self._stamp(weight) for weight in self.weights] and all(
            sample is None or value is None or torch.equal(sample, value)
            for sample, value in zip(self.samples, self.values, strict=True)
        )

    @staticmethod
    def _stamp(weight: Tensor | None) -> tuple[int, int]:
        if weight is None:
            return 0, 0
        return weight.data_ptr(), -1 if weight.is_inference() else weight._version


class PreparedLinear:
    """x Wᵀ + b, with W stored in the order that is fastest for the number of rows at hand."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:  # (out, in), (out,)
        self.weight, self.bias, self.width = weight, bias, weight.size(1)
        self.packable = PACKABLE and weight.dtype == torch.float32 and weight.numel() >= LARGE
        self.turned: Tensor | None = None  # (out, in) by its shape, (in, out) in memory
        self.packed: Tensor | None = None  # oneDNN's blocks

    def __call__(self, x: Tensor) -> Tensor:  # (…, in) -> (…, out)
        if self.packable and x.numel() > self.width:
            if self.packed is None:
                self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight)
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        if self.turned is None:
            self.turned = self.weight.t().contiguous().t()
        return F.linear(x, self.turned, self.bias)


class PreparedHead:
    """The vocabulary head, whose matrix may be the embedding's."""

    def __init__(self, linear: PreparedLinear) -> None:
        self.linear = linear

    def __call__(self, hidden: Tensor, embedding: TokenEmbedding, real: Tensor | None = None) -> Tensor:
        return self.linear(hidden)


class Added:
    """The mask and the bias of a pass as one tensor to add to the scores, made once for all layers."""

    def __init__(self) -> None:
        self.known: tuple[AttentionInputs | None, Tensor | None] = (None, None)

    def to_scores(self, inputs: AttentionInputs, dtype: torch.dtype) -> Tensor | None:
        known = self.known
        if known[0] is not inputs:
            added = None if inputs.bias is None else inputs.bias.to(dtype)
            if inputs.may_attend is not None:
                hidden = torch.zeros(inputs.may_attend.shape, dtype=dtype).masked_fill_(~inputs.may_attend, -math.inf)
                added = hidden if added is None else added + hidden
            known = self.known = (inputs, added)
        return known[1]


class PreparedSelfAttention:
    """The decoder's self-attention at a step: k new tokens of each row, the beams of its sentence.

    Query, key and value are one matrix, and 1/√d is multiplied into the query's part of it.
    """

    def __init__(self, ours: MultiHeadAttention, maps: tuple[PreparedLinear, PreparedLinear], added: Added) -> None:
        (self.query_key_value, self.out), self.added = maps, added
        self.heads, self.key_value_heads, self.layout = ours.heads, ours.key_value_heads, ours.layout
        self.width = ours.query.out_features  # of all heads together

    def __call__(self, x: Tensor, inputs: AttentionInputs, memory: None, cache: SharedKeys) -> Tensor:
        batch, beams, _ = x.shape
        heads, shared, width, size = self.heads, self.key_value_heads, self.width, self.width // self.heads
        made = self.query_key_value(x)  # (B, k, (H + 2G)·d)
        if inputs.rotation is not None:
            cos, sin = (table.transpose(1, 2) for table in inputs.rotation)  # (B, k, 1, d/2)
            turning = made[..., : width + shared * size].unflatten(-1, (-1, size))  # queries and keys
            turning.copy_(rotate(turning, cos, sin, self.layout))
        queries, fresh = made.tensor_split((width,), dim=-1)
        keys, values = cache.append(fresh.view(batch, beams, 2, shared, size))
        scores = torch.bmm(by_key_head(queries, heads, shared), keys)  # (B·G, k·H/G, T)
        added = self.added.to_scores(inputs, scores.dtype)
        if added is not None:
            scores.view(batch, heads, beams, -1).add_(added)
        return self.out(by_token(torch.bmm(scores.softmax(-1), values), batch, heads))


class PreparedCrossAttention:
    """The decoder's attention to its source at a step: the beams of a sentence are several queries to one memory."""

    def __init__(
        self, ours: MultiHeadAttention, maps: tuple[PreparedLinear, PreparedLinear, PreparedLinear], added: Added
    ) -> None:
        (self.query, self.key_value, self.out), self.added = maps, added
        self.heads, self.key_value_heads = ours.heads, ours.key_value_heads

    def __call__(self, x: Tensor, inputs: AttentionInputs, memory: Tensor, cache: SourceKeys) -> Tensor:
        batch, beams, width = x.shape
        if cache.keys is None:
            cache.fill(self.key_value(memory).unflatten(-1, (2, self.key_value_heads, -1)))
            if batch == 1 and inputs.may_attend is None and self.heads * memory.size(1) <= width:
                self.absorb(cache)
        if cache.scores_from is not None and cache.output_from is not None:
            weights = cache.scores_from(x).view(batch, beams, self.heads, -1).softmax(-1)
            return cache.output_from(weights.view(batch, beams, -1))
        keys, values = cache.all()
        scores = torch.bmm(by_key_head(self.query(x), self.heads, self.key_value_heads), keys)
        added = self.added.to_scores(inputs, scores.dtype)
        if added is not None:
            scores.view(batch, self.heads, beams, -1).add_(added)
        return self.out(by_token(torch.bmm(scores.softmax(-1), values), batch, self.heads))

    def absorb(self, cache: SourceKeys) -> None:
        """A single short source is multiplied into the matrices: x W_q Kᵀ becomes x A with A = W_q Kᵀ, and likewise
        behind the softmax, which is smaller than W_q as long as heads × source length is below the model width."""
        keys, values = cache.all()  # (G, d, T), (G, T, d)
        shared = self.heads // self.key_value_heads
        keys, values = keys.mT.repeat_interleave(shared, 0), values.repeat_interleave(shared, 0)  # (H, T, d)
        query, out = self.query, self.out
        split = (self.heads, keys.size(-1))
        before = torch.bmm(keys, query.weight.unflatten(0, split)).flatten(0, 1)  # (H·T, D)
        bias = None if query.bias is None else torch.bmm(keys, query.bias.view(*split, 1)).flatten()
        after = torch.bmm(values, out.weight.t().unflatten(0, split)).flatten(0, 1)  # (H·T, D)
        cache.scores_from, cache.output_from = PreparedLinear(before, bias), PreparedLinear(after.t(), out.bias)


def by_key_head(queries: Tensor, heads: int, key_value_heads: int) -> Tensor:
    """(B, k, H·d) -> (B·G, H/G·k, d): the queries that meet the same keys, together."""
    batch, beams, width = queries.shape
    if beams > 1:
        queries = queries.view(batch, beams, heads, -1).transpose(1, 2)
    return queries.reshape(batch * key_value_heads, -1, width // heads)


def by_token(context: Tensor, batch: int, heads: int) -> Tensor:
    """The way back: (B·G, H/G·k, d) -> (B, k, H·d)."""
    beams = context.size(0) * context.size(1) // (batch * heads)
    if beams == 1:
        return context.view(batch, 1, -1)
    return context.view(batch, heads, beams, -1).transpose(1, 2).flatten(-2)


@cache
def direct(kind: Any) -> Any:
    """The same class, for modules without hooks: calling it is calling `forward`."""
    return type(f"Direct{kind.__name__}", (kind,), {"__call__": kind.forward})


def shallow(module: Kind, children: dict[str, object]) -> Kind:
    """A copy of one module with other children, which shares everything else with it. Parameters and children are
    attributes like any other in it, which Python finds in a tenth of the time that torch needs to look for them."""
    kind: Any = type(module)
    twin: Kind = object.__new__(direct(kind) if untouched(module) else kind)
    twin.__dict__ |= module.__dict__ | {"_modules": children} | module._parameters | children
    return twin


class Preparer:
    """Prepares a model anew for every batch, so that it is always the model as it is now. The structure is cheap to
    copy; a matrix is stored anew only when its weights have changed."""

    def __init__(self, store: Callable[[Tensor, Tensor | None], PreparedLinear] = PreparedLinear) -> None:
        self.store = store  # a weight and a bias, as a linear map that reads them fast
        self.kept: dict[tuple[float, ...], tuple[Fingerprint, PreparedLinear]] = {}
        self.used: dict[tuple[float, ...], tuple[Fingerprint, PreparedLinear]] = {}

    def __call__(self, model: Model, merge: bool) -> Model:
        """A copy that decodes faster. `merge`: the attentions as well, for decoding with a `SharedCache`."""
        self.used = {}
        with torch.inference_mode():
            decoder = self._copy(model.decoder, Added() if merge else None)
            output: object = model.output
            if type(model.output) is VocabularyHead and untouched(model.output):
                _, weight, bias = model.output.factors(model.embedding.weight, model.embedding)
                output = PreparedHead(self._linear([(weight, bias, 1.0)]))
            embedding = self._copy(model.embedding, None)
        self.kept = self.used  # matrices of parts that are gone go with them
        return shallow(model, {**model._modules, "embedding": embedding, "decoder": decoder, "output": output})

    def _copy(self, module: nn.Module, added: Added | None) -> object:
        if isinstance(module, nn.Linear) and is_plain_linear(module):
            return self._linear([(module.weight, module.bias, 1.0)])
        if not is_known(module):
            return module
        children: dict[str, object] = {}
        for name, child in module._modules.items():
            if added is not None and isinstance(child, MultiHeadAttention):
                children[name] = self._attention(child, added, crossing=name == "cross_attention")
            else:
                children[name] = None if child is None else self._copy(child, added)
        return shallow(module, children)

    def _attention(self, ours: MultiHeadAttention, added: Added, crossing: bool) -> object:
        scale = 1 / math.sqrt(ours.query.out_features // ours.heads)
        query = (ours.query.weight, ours.query.bias, scale)
        pair: list[Part] = [(one.weight, one.bias, 1.0) for one in (ours.key, ours.value)]
        out = self._linear([(ours.out.weight, ours.out.bias, 1.0)])
        if crossing:
            return PreparedCrossAttention(ours, (self._linear([query]), self._linear(pair), out), Added())
        return PreparedSelfAttention(ours, (self._linear([query, *pair]), out), added)

    def _linear(self, maps: list[Part]) -> PreparedLinear:
        """Several linear maps of one input as one matrix, each with a factor."""
        weights = [tensor for weight, bias, _ in maps for tensor in (weight, bias)]
        key = (*map(id, weights), *(factor for _, _, factor in maps))
        kept = self.kept.get(key)
        if kept is None or not kept[0].fits():
            biases = [bias.detach() * factor for _, bias, factor in maps if bias is not None]
            if len(maps) == 1 and maps[0][2] == 1:
                linear = self.store(maps[0][0].detach(), None if maps[0][1] is None else maps[0][1].detach())
            else:
                weight = torch.cat([weight.detach() * factor for weight, _, factor in maps])
                linear = self.store(weight, torch.cat(biases) if biases else None)
            kept = Fingerprint(weights), linear
        self.used[key] = kept
        return kept[1]
