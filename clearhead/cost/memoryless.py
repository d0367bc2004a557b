"""A pass without memory: tensors that have a shape and a type, but nothing in them.

They live on torch's device `meta`. A model that is counted there must take the paths it takes on the CPU, which it
chooses by asking its tensors for their device, and torch by asking for the attention kernel that suits them: both are
answered here as for the CPU. torch knows the shape that each operation would make, but loads its compiler to tell,
which takes longer than everything else together: so the operations that our models are made of have their shapes
written down in shapes.py, and torch is asked for all others. (Its own fake tensors load the compiler, too.)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.cost.shapes import shaped

_CPU = torch.device("cpu")
_device_of = torch.Tensor.device.__get__


class Dispatch(TorchDispatchMode):
    """Whoever looks on while operations run; nothing is compiled meanwhile, so torch need not load its compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextmanager
def without_memory() -> Iterator[None]:
    """Inside this, new tensors take no memory and say that they are on the CPU."""
    with _Shapes(), torch.device("meta"), _AsOnCpu():
        yield


class _Shapes(Dispatch):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = shaped(func, args, kwargs or {})
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


class _AsOnCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _device_of:
            return _CPU
        # who asks for the CPU does so beside a tensor that said it is there
        args = tuple("meta" if isinstance(one, torch.device) else one for one in args)
        named: dict[str, Any] = {
            name: "meta" if isinstance(one, torch.device) else one for name, one in (kwargs or {}).items()
        }
        if func is F.scaled_dot_product_attention:
            return _attend(*args, **named)
        return func(*args, **named)


def _elsewhere(argument: Any) -> Any:
    return "meta" if isinstance(argument, torch.device) else argument


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    **named: Any,
) -> Tensor:
    """torch's own attention, with the kernel that it would choose on the CPU."""
    stand_ins: list[Any] = [None if x is None else _one_row(x) for x in (q, k, v, mask)]
    choose: Any = torch._fused_sdp_choice
    if choose(*stand_ins, dropout, causal, **named) != SDPBackend.FLASH_ATTENTION.value:
        return F.scaled_dot_product_attention(q, k, v, mask, dropout, causal, **named)
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(mask.logical_not(), -torch.inf)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, dropout, causal, attn_mask=mask)[0]


def _one_row(like: Tensor) -> Tensor:
    """A real tensor of any shape in the memory of one row: what matters to the choice is only its shape."""
    row = torch.empty(like.size(-1), dtype=like.dtype, device="cpu")
    return row.as_strided(like.shape, (0,) * (like.dim() - 1) + (1,)).requires_grad_(like.requires_grad)
