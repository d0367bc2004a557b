"""What each operation would make: the shape, the type and the order in memory, without making it.

Only the operations that Transformers are made of; views are not among them, because torch makes these at no cost. Each
rule is that of the operation on the CPU (tests/cost holds whole passes to real ones, byte by byte).
"""

import math
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def shaped(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What `func` would return, or NotImplemented where no rule is known here."""
    if func._schema.is_mutable:  # written into what was given
        return kwargs["out"] if "out" in kwargs else args[0]
    if (rule := RULES.get(func._overloadpacket)) is not None:
        return rule(*args, **kwargs)
    if torch.Tag.pointwise in func.tags:
        return _pointwise(func._overloadpacket, args)
    return NotImplemented


def _empty(shape: Any, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def _pointwise(operation: Any, args: tuple[Any, ...]) -> Tensor:
    tensors = [one for one in args if isinstance(one, Tensor)]
    valued = tensors[1:] if operation is aten.where else tensors
    dtype = valued[0].dtype
    if operation in COMPARING:
        dtype = torch.bool
    elif operation is not aten.masked_fill:
        scalars = [one for one in args if isinstance(one, int | float) and not isinstance(one, bool)]
        for other in [*valued[1:], *(scalars[:1] if len(tensors) == 1 else [])]:
            dtype = torch.result_type(_empty((1,) * valued[0].dim(), dtype), other)
        if operation in ALWAYS_FLOAT and not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
    return _laid_out(_broadcast(tensors), dtype, tensors)


def _broadcast(tensors: list[Tensor]) -> tuple[int, ...]:
    columns = zip_longest(*(reversed(one.shape) for one in tensors), fillvalue=1)
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in columns)[::-1]


def _laid_out(shape: tuple[int, ...], dtype: torch.dtype, operands: list[Tensor]) -> Tensor:
    """In the order in memory of the operands: that of the first, if no other is simply row after row."""
    whole = [one for one in operands if one.shape == shape]
    if not whole or any(one.is_contiguous() for one in whole):
        return _empty(shape, dtype)
    strides = whole[0].stride()
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    back = sorted(range(len(shape)), key=order.__getitem__)
    return _empty([shape[dim] for dim in order], dtype).permute(back)


def _reduce(x: Tensor, dims: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    dims = range(x.dim()) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    gone = {dim % x.dim() for dim in dims}
    kept = [(1 if dim in gone else size) for dim, size in enumerate(x.shape) if keepdim or dim not in gone]
    return _empty(kept, dtype or x.dtype)


def _arange(*limits: float, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    start, end, step = {1: (0, *limits, 1), 2: (*limits, 1), 3: limits}[len(limits)]
    whole = all(isinstance(one, int) for one in limits)
    return _empty([math.ceil((end - start) / step)], dtype or (torch.int64 if whole else None))


def _index(x: Tensor, indices: list[Tensor | None]) -> Any:
    """Indices into the first dimensions; what is indexed otherwise is torch's to say."""
    given = [one for one in indices if one is not None and one.dtype != torch.bool]
    if len(given) < len(indices):
        return NotImplemented
    return _empty([*_broadcast(given), *x.shape[len(given) :]], x.dtype)


def _cat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    shape = list(tensors[0].shape)
    shape[dim] = sum(one.size(dim) for one in tensors)
    return _empty(shape, tensors[0].dtype)


def _stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    shape = list(tensors[0].shape)
    shape.insert(dim % (len(shape) + 1), len(tensors))
    return _empty(shape, tensors[0].dtype)


def _layer_norm(x: Tensor, normalised: list[int], *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = [*x.shape[: x.dim() - len(normalised)], *(1 for _ in normalised)]
    return _empty(x.shape, x.dtype), _empty(rows, x.dtype), _empty(rows, x.dtype)


def _layer_norm_backward(
    gradient: Tensor, x: Tensor, normalised: list[int], mean: Tensor, scale: Tensor, weight: Any, bias: Any, *_: Any
) -> tuple[Tensor | None, ...]:
    return _empty(x.shape, x.dtype), *(None if one is None else _empty(one.shape, one.dtype) for one in (weight, bias))


def _flash(q: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    batch, heads, queries = q.shape[:3]
    return _like(q), _empty((batch, queries, heads), torch.float32).transpose(1, 2)


def _flash_backward(gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> tuple[Tensor, ...]:
    """Each (B, H, S, d) with all heads of a token side by side in memory."""
    return tuple(_empty(one.transpose(1, 2).shape, one.dtype).transpose(1, 2) for one in (q, k, v))


def _like(x: Tensor, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return _laid_out(x.shape, dtype or x.dtype, [x])


def _copy(x: Tensor, memory_format: torch.memory_format = torch.preserve_format, **named: Any) -> Tensor:
    return _like(x, **named) if memory_format is torch.preserve_format else _empty(x.shape, x.dtype)


def _sized(shape: Any, *_: Any, dtype: torch.dtype | None = None, **__: Any) -> Tensor:
    return _empty(shape, dtype)


COMPARING = {aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge, aten.logical_not, aten.logical_and, aten.logical_or}
ALWAYS_FLOAT = {aten.div, aten.exp, aten.sin, aten.cos, aten.sqrt, aten.rsqrt, aten.tanh, aten.sigmoid, aten.erf}
RULES: dict[Any, Callable[..., Any]] = {
    aten.mm: lambda a, b: _empty((a.size(0), b.size(1)), a.dtype),
    aten.addmm: lambda bias, a, b, **_: _empty((a.size(0), b.size(1)), a.dtype),
    aten.bmm: lambda a, b: _empty((a.size(0), a.size(1), b.size(2)), a.dtype),
    aten.sum: _reduce,
    aten.mean: _reduce,
    aten.amax: _reduce,
    aten.any: lambda x, *given: _reduce(x, *given, dtype=torch.bool),
    aten.argmax: lambda x, *given: _reduce(x, *given, dtype=torch.int64),
    aten._softmax: lambda x, dim, half: _empty(x.shape, x.dtype),
    aten._safe_softmax: lambda x, dim, dtype=None: _empty(x.shape, dtype or x.dtype),
    aten._softmax_backward_data: lambda gradient, x, dim, dtype: _empty(x.shape, dtype),
    aten.cumsum: lambda x, dim: _empty(x.shape, x.dtype if x.is_floating_point() else torch.int64),
    aten.clone: _copy,
    aten._to_copy: _copy,
    aten.tril: lambda x, diagonal=0: _empty(x.shape, x.dtype),
    aten.embedding: lambda table, ids, *_: _empty([*ids.shape, table.size(1)], table.dtype),
    aten.embedding_dense_backward: lambda gradient, ids, rows, *_: _empty([rows, gradient.size(-1)], gradient.dtype),
    aten.native_layer_norm: _layer_norm,
    aten.native_layer_norm_backward: _layer_norm_backward,
    aten._scaled_dot_product_flash_attention_for_cpu: _flash,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _flash_backward,
    aten.cat: _cat,
    aten.stack: _stack,
    aten.index: _index,
    aten.index_put: _like,
    aten.arange: _arange,
    aten.zeros: _sized,
    aten.ones: _sized,
    aten.rand: _sized,
    aten.randint: lambda high, shape, **named: _empty(shape, named.get("dtype") or torch.int64),
    aten.scalar_tensor: lambda value, dtype=None, **_: _empty((), dtype),
    aten.zeros_like: _like,
    aten.ones_like: _like,
    aten.empty_like: _like,
    aten.new_zeros: lambda x, shape, dtype=None, **_: _empty(shape, dtype or x.dtype),
    aten._unsafe_view: lambda x, shape: x.view(shape),
}
