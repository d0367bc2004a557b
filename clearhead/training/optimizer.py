"""Which optimizer works on which parameters.

Adam (Kingma and Ba, 2015) with the paper's β₂ = 0.98 and ε = 1e-9 (section 5.3). AdamW (Loshchilov and Hutter, 2019)
takes the decay out of the gradient, and only matrices decay: a norm's weight belongs near one, not near zero, and a
bias costs nothing. Muon makes the step of each matrix inside the layers orthogonal, so that all its directions learn at
one speed (muon.py); embeddings, norms and biases stay with AdamW, at the same rate.
"""

from collections.abc import Iterator

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
        return [torch.optim.Adam([*matrices, *vectors], betas=betas, eps=epsilon, **kernels(model))]
    optimizers: list[torch.optim.Optimizer] = []
    if settings.optimizer == "muon":
        inside = {id(p) for name, p in model.named_parameters() if ".layers." in name}
        orthogonal = [p for p in matrices if id(p) in inside]
        matrices = [p for p in matrices if id(p) not in inside]
        optimizers.append(Muon(orthogonal, settings.weight_decay))
    decay = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [*optimizers, torch.optim.AdamW(decay, betas=betas, eps=epsilon, **kernels(model))]


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
