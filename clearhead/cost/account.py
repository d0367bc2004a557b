"""What a model costs, counted part by part: parameters, FLOPs, activation memory, KV cache.

Formulas drift away from the code, so the model itself runs, forward and backward, on tensors that have shapes and types
but no memory (memoryless.py): the largest preset is counted on the smallest machine. What every operation does and what
autograd keeps is written down for the part that was at work. All layers of a stack after the first cost the same, so
two of each run and the others are added. Only the KV cache is computed from the sizes.

* FLOPs are those of the matrix products, a multiplication and an addition counting two. Softmax, norms and the like
  are left out, as everyone leaves them out: they cost time by moving memory, not by arithmetic. A causal mask saves
  nothing here: the hidden half is counted too.
* Activations are the bytes that must stay alive between the forward and the backward pass: every tensor that autograd
  has saved, and the model's output. One that several parts need is counted once, for the first. Parameters, gradients
  and what a kernel needs only while it runs are not in it, nor is the loss.
* The KV cache is what decoding holds for a batch of `length` tokens (and `source_length` of them on the other side):
  a key and a value of each key/value head and layer.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from clearhead.cost.memoryless import Dispatch, without_memory
from clearhead.cost.parts import Part, part_of, watch
from clearhead.errors import InputError
from clearhead.model import ModelConfig, Transformer
from clearhead.skeleton import skeleton

aten = torch.ops.aten


@dataclass(frozen=True)
class Size:
    """How much goes through the model at once. `source_length` is the other side's, for an encoder-decoder."""

    batch: int = 8
    length: int = 128
    source_length: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "length", "source_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name.replace('_', '-')} must be at least 1, not {value}")

    @property
    def source(self) -> int:
        return self.length if self.source_length is None else self.source_length

    def inputs(self, config: ModelConfig) -> tuple[Tensor, ...]:
        """Token ids for `model(*inputs)`: the source, if there is one, and the target."""
        lengths = (self.source, self.length) if config.kind == "encoder-decoder" else (self.length,)
        table = config.positions.max_length
        if table is not None and max(lengths) > table:
            raise InputError(f"a length of {max(lengths)} is past the model's {table} learned positions")
        return tuple(torch.randint(config.vocab_size, (self.batch, length)) for length in lengths)


@dataclass
class Cost:
    """Totals of one part, all its layers together."""

    parameters: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    activation_bytes: int = 0
    cache_bytes: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def grown(self, two: "Cost", layers: int) -> "Cost":
        """Of `layers` layers, where this is the cost of one and `two` that of two."""
        return Cost(
            *(
                getattr(self, field.name) + (layers - 1) * (getattr(two, field.name) - getattr(self, field.name))
                for field in fields(self)
            )
        )


def total(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


def account(config: ModelConfig, size: Size | None = None) -> dict[Part, Cost]:
    """The cost of each part in one training pass in float32, forward and backward, without allocating any of it."""
    size = size or Size()
    layers = {"encoder": config.encoder_layers, "decoder": config.decoder_layers, "": 1}
    if max(layers.values()) <= 2:
        return count(config, size)
    one, two = count(at_most(config, 1), size), count(at_most(config, 2), size)
    # where a stack has only one layer, `two` is one as well, and nothing is added
    return {part: one[part].grown(two[part], max(1, layers[part.stack])) for part in two}


def at_most(config: ModelConfig, layers: int) -> ModelConfig:
    """The same model with no more layers than this in each stack."""
    return replace(
        config,
        encoder_layers=min(config.encoder_layers, layers),
        decoder_layers=min(config.decoder_layers, layers),
    )


def count(config: ModelConfig, size: Size) -> dict[Part, Cost]:
    """The cost of each part, from a pass through all layers."""
    costs: dict[Part, Cost] = defaultdict(Cost)
    with without_memory():
        model = skeleton(config)
        for part, number in ({Part("", "positions"): 0} | parameters(model)).items():
            costs[part].parameters = number  # positions without parameters are worth a row: they come for free
        run(model, size.inputs(config), costs)
    if config.kind != "encoder":
        one = config.decoder_layers * size.batch * config.key_value_heads * config.d_head * torch.float32.itemsize
        for name in ("key", "value"):
            costs[Part("decoder", "self-attention", name)].cache_bytes = one * size.length
            if config.kind == "encoder-decoder":
                costs[Part("decoder", "cross-attention", name)].cache_bytes = one * size.source
    return dict(costs)


def parameters(model: nn.Module) -> dict[Part, int]:
    """Numbers learned, by part; a tied matrix belongs to the embedding."""
    counts: dict[Part, int] = defaultdict(int)
    for name, parameter in model.named_parameters():
        counts[part_of(name.rpartition(".")[0])] += parameter.numel()
    return dict(counts)


def run(model: Transformer, inputs: tuple[Tensor, ...], costs: dict[Part, Cost]) -> None:
    """One pass forward and backward, adding its FLOPs and kept bytes to `costs`."""
    forward, kept = True, Kept(model)
    current = part_of("")

    def switch(part: Part | None) -> None:
        nonlocal current
        current = part or current

    def add(flops: int) -> None:
        if forward:
            costs[current].forward_flops += flops
        else:
            costs[current].backward_flops += flops

    def keep(tensor: Tensor) -> Tensor:
        costs[current].activation_bytes += kept.add(tensor)
        return tensor

    with FlopMeter(add), watch(model, switch):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = model(*inputs)
        costs[part_of("")].activation_bytes += kept.add(output)
        forward = False
        output.sum().backward()  # which asks for no gradient of its own, whose check would load the compiler


class Kept:
    """Memory that has been counted: parameters from the start, everything else once, however many views it has."""

    def __init__(self, model: Transformer) -> None:
        # the storages themselves, so that none can be freed and its identity taken by another
        self.storages = {s._cdata: s for s in (parameter.untyped_storage() for parameter in model.parameters())}

    def add(self, tensor: Tensor) -> int:
        """Bytes that keeping this tensor adds."""
        storage = tensor.untyped_storage()
        if storage._cdata in self.storages:
            return 0
        self.storages[storage._cdata] = storage
        return storage.nbytes()


class FlopMeter(Dispatch):
    """Tells `count` the FLOPs of every matrix product that runs."""

    def __init__(self, count: Any) -> None:
        super().__init__()
        self.count = count

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        operation = func._overloadpacket
        if operation is aten._scaled_dot_product_flash_attention_for_cpu:
            self.count(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))
        elif operation is aten._scaled_dot_product_flash_attention_for_cpu_backward:
            self.count(sdpa_backward_flop_count(*(tensor.shape for tensor in args[:4])))
        elif operation in flop_registry:
            self.count(flop_registry[operation](*args, **kwargs, out_val=result))
        return result
