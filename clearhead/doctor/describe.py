"""How a model is described to the doctor: what builds it, what runs it, and what it promises.

`build` and `forward` are enough. Every further field arms further probes; a field left out is listed in the report
as not armed, never as passed. All token tensors are (B, S) integers; masks are boolean, True at real tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reference:
    """Known-good behaviour: with these weights, these inputs must give this output."""

    weights: Mapping[str, Tensor]  # a state dict
    inputs: tuple[Tensor, ...]  # (tokens,) or (source, target)
    output: Tensor
    sizes: Mapping[str, Any] = field(default_factory=dict)  # passed to `build`


@dataclass(frozen=True, kw_only=True)
class Description:
    """What the three kinds of models share."""

    # build(**sizes) -> nn.Module, with random weights. The doctor passes those of vocab, width, heads, kv_heads,
    # layers, max_length and dropout that the builder takes, by these names or common ones (d_model, n_layer, ...).
    build: Callable[..., Any]
    # the model's outputs: a tensor, a tuple that begins with it, or an object with .logits or .last_hidden_state
    forward: Callable[..., Any]

    name: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)  # sizes this model needs instead of the doctor's own
    pad: int | tuple[int, int] | None = None  # the padding token; two of them: the source's and the target's
    pad_by_id: bool = False  # the model hides `pad` by itself: forward takes no mask
    left_padded: bool = False  # prompts are padded on the left, so positions must count real tokens only
    dtype: torch.dtype | None = None  # examine in this dtype; None: float64 where the model can
    positions: str | None = None  # "absolute", "rotary", "alibi", "relative" or "none"
    window: int | None = None  # how many tokens back self-attention reaches, the token itself included
    tied: bool | None = None  # does the output head share its weight with the embedding?
    shared: bool = False  # layers share parameters on purpose
    coupled: bool = False  # rows may influence each other on purpose (BatchNorm, experts with a capacity)
    scaled: bool = True  # scores are divided by √d_head; False where the model means not to
    length_limit: int | None = None  # sequences longer than this must be refused
    paths: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # other forwards that must agree
    reference: Callable[[], Reference] | None = None

    loss: Callable[..., Any] | None = None  # the training loss of a batch, a scalar
    label_smoothing: float = 0.0
    reduction: str | None = None  # of the loss over real tokens: "mean", "sum" or "rows" (a sum over each row's)
    optimizer: Callable[[Any], Any] | None = None  # optimizer(model) -> torch.optim.Optimizer
    update: Callable[..., Any] | None = None  # update(model, optimizer, micro_batches): one step of training
    # do all micro-batches have as many real tokens? None: those without padding may
    equal_micro_batches: bool | None = None
    clip: float | None = None  # the gradient norm `update` clips to
    learning_rate: Callable[[int], float] | None = None  # of update 0, 1, 2, ...
    warmup: int | None = None  # the update at which the learning rate peaks
    steps: int | None = None  # how many updates there will be


@dataclass(frozen=True, kw_only=True)
class CausalLM(Description):
    """A decoder-only model: forward(model, tokens[, real]) -> (B, S, V); loss(model, tokens), shift included."""

    prefix: int = 0  # the first tokens that see each other both ways (prefix language models)
    # cached(model, tokens, cache) -> (logits of these tokens, cache); None is the empty cache
    cached: Callable[..., Any] | None = None
    reorder: Callable[[Any, Tensor], Any] | None = None  # reorder(cache, rows) -> cache
    # generate(model, tokens, count[, real]), greedy -> (B, S + count)
    generate: Callable[..., Any] | None = None
    packed: Callable[..., Any] | None = None  # packed(model, tokens, documents): documents numbers each token's text


@dataclass(frozen=True, kw_only=True)
class Encoder(Description):
    """A bidirectional model: forward(model, tokens[, real]) -> (B, S, anything); loss(model, tokens, labels)."""


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Description):
    """forward(model, source, target[, source_real[, target_real]]) -> (B, S, V), S the target's length.

    loss(model, source, target) is the loss of predicting target[:, 1:] from target[:, :-1].
    """

    cached: Callable[..., Any] | None = None  # cached(model, source, target, cache) -> (logits, cache)
    reorder: Callable[[Any, Tensor], Any] | None = None
    generate: Callable[..., Any] | None = None  # generate(model, source, start, count[, source_real]), greedy
