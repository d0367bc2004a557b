"""Which matrices read what an activation has bent: the second maps of feed-forward layers, whatever they are called."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

BENDS = {"relu", "gelu", "silu", "sigmoid", "tanh", "erf", "threshold", "elu", "leaky_relu", "hardswish", "mish",
         "softplus", "clamp_min", "relu_", "silu_", "leaky_relu_"}  # fmt: skip
FOLLOWED = {"mul", "div", "pow", "add", "clone", "_to_copy", "contiguous", "alias", "native_dropout", "mul_", "div_"}


def memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


class Activated(TorchDispatchMode):
    """Follows what activations made, up to the matrix it is multiplied with; what attention mixed is left alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {memory(p): name for name, p in model.named_parameters() if p.dim() > 1}
        self.bent: dict[int, Tensor] = {}  # kept alive, so that no memory is mistaken for another's
        self.mixed: dict[int, Tensor] = {}
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        result = out[0] if isinstance(out, tuple) and out else out
        if isinstance(result, Tensor) and result.is_floating_point():
            self.note(name, [x for x in args if isinstance(x, Tensor)], result)
        return out

    def note(self, name: str, given: list[Tensor], out: Tensor) -> None:
        if name in ("mm", "addmm", "bmm") and memory(given[-1]) in self.names:
            if memory(given[-2]) in self.bent:
                self.found.append(self.names[memory(given[-1])])
        elif name == "bmm" or name.startswith("_scaled_dot_product"):
            self.mixed[memory(out)] = out
        elif name in BENDS and not any(memory(x) in self.mixed for x in given):
            self.bent[memory(out)] = out
        elif name in FOLLOWED and given:
            # a gate over what attention mixed is attention's, and a sum of two tensors ends a sub-layer
            kept = any(memory(x) in self.mixed for x in given)
            if kept:
                self.mixed[memory(out)] = out
            elif any(memory(x) in self.bent for x in given) and not (name == "add" and len(given) > 1):
                self.bent[memory(out)] = out


def after_activation(model: nn.Module, run: Callable[[], Any]) -> list[str]:
    """The names of the matrices that read activations in a pass; with gradients, which no fused layer has."""
    with torch.enable_grad(), Activated(model) as activated:
        run()
    return list(dict.fromkeys(activated.found))
