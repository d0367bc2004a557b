"""Which optimizer works on which parameters.

Adam (Kingma and Ba, 2015) with the paper's β₂ = 0.98 and ε = 1e-9 (section 5.3). AdamW (Loshchilov and Hutter, 2019)
takes the decay out of the gradient, and only matrices decay: a norm's weight belongs near one, not near zero, and a
bias costs nothing. Muon makes the step of each matrix inside the layers orthogonal, so that all its directions learn at
one speed (muon.py); embeddings, norms and biases stay with AdamW, at the same rate.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.training.config import TrainingSettings
from clearhead.training.muon import Muon


def parameter_groups(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The parameters that decay (matrices) and those that do not (norms, biases)."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]


def build_optimizers(model: nn.Module, settings: TrainingSettings) -> list[torch.optim.Optimizer]:
    """One optimizer, or for Muon two; each parameter belongs to exactly one."""
    matrices, vectors = parameter_groups(model)
    betas, epsilon = (settings.beta1, settings.beta2), settings.epsilon
    if settings.optimizer == "adam":
        groups = by_depth(model, [{"params": [*matrices, *vectors]}], settings.layer_decay)
        return [torch.optim.Adam(groups, betas=betas, eps=epsilon, **kernels(model))]
    optimizers: list[torch.optim.Optimizer] = []
    if settings.optimizer == "muon":
        inside = {id(p) for name, p in model.named_parameters() if ".layers." in name}
        orthogonal = [p for p in matrices if id(p) in inside]
        matrices = [p for p in matrices if id(p) not in inside]
        if orthogonal:  # else all layers are frozen
            groups = by_depth(model, [{"params": orthogonal}], settings.layer_decay)
            optimizers.append(Muon(groups, settings.weight_decay))
    decay = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    decay = by_depth(model, decay, settings.layer_decay)
    return [*optimizers, torch.optim.AdamW(decay, betas=betas, eps=epsilon, **kernels(model))]


def by_depth(model: nn.Module, groups: list[dict[str, Any]], decay: float) -> list[dict[str, Any]]:
    """The groups divided by layer, each with the factor of its rate (Howard and Ruder, 2018): the head's is 1, that of
    the layer below it `decay`, and so on down to the embedding."""
    if decay == 1:
        return groups
    factors = {id(p): decay ** height(model, name) for name, p in model.named_parameters()}
    result = []
    for group in groups:
        divided: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            divided.setdefault(factors[id(parameter)], []).append(parameter)
        result += [{**group, "params": params, "factor": factor} for factor, params in divided.items()]
    return result


def height(model: nn.Module, name: str) -> int:
    """How many layers stand between a parameter and the head; the encoder stands below the decoder."""
    sizes = [len(stack.layers) for part in ("encoder", "decoder") if (stack := getattr(model, part, None)) is not None]
    found = re.match(r"(encoder|decoder)\.layers\.(\d+)\.", name)
    if found:
        below = sizes[0] if found[1] == "decoder" and len(sizes) == 2 else 0
        return sum(sizes) - below - int(found[2])
    return sum(sizes) + 1 if "embedding." in name else 0


def kernels(model: nn.Module) -> dict[str, bool]:
    """One fused kernel for all parameters where there is one; shards have none on every device."""
    parameter = next(model.parameters())
    return {"fused": parameter.device.type in ("cpu", "cuda") and not hasattr(parameter, "device_mesh")}


# What an optimizer remembers of a parameter once it has moved it: tensors of its shape, and those of a single number.
REMEMBERED: dict[type[torch.optim.Optimizer], tuple[tuple[str, ...], tuple[str, ...]]] = {
    torch.optim.Adam: (("exp_avg", "exp_avg_sq"), ("step",)),
    torch.optim.AdamW: (("exp_avg", "exp_avg_sq"), ("step",)),
    Muon: (("momentum",), ()),
}


def remembered_shapes(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> dict[str, dict[str, torch.Size]]:
    """For each parameter that is trained: the names and shapes of all that its optimizer remembers of it."""
    owner = {p: o for o in optimizers for group in o.param_groups for p in group["params"]}
    result = {}
    for name, parameter in model.named_parameters():
        if parameter in owner:
            alike, single = REMEMBERED[type(owner[parameter])]
            shapes = {**dict.fromkeys(alike, parameter.shape), **dict.fromkeys(single, torch.Size())}
            result[name] = {f"{key}.{name}": shape for key, shape in shapes.items()}
    return result


def optimizer_tensors(model: nn.Module, optimizers: list[torch.optim.Optimizer]) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that the optimizers remember, as `exp_avg.<parameter>` and the like, in a fixed order."""
    for name, parameter in model.named_parameters():
        for optimizer in optimizers:
            for key, value in sorted(optimizer.state.get(parameter, {}).items()):
                yield f"{key}.{name}", value
