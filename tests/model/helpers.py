"""Small models and the ways to compare them, shared by the tests of the model and of interop."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

import clearhead

# the smallest of each kind that still has several heads, several layers and a width that is no power of two
SMALL: dict[str, Any] = {
    "vocab_size": 29,
    "d_model": 24,
    "heads": 4,
    "d_ff": 40,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": {"residual": 0.0, "embedding": 0.0, "attention": 0.0, "hidden": 0.0},
}
KINDS = ("encoder-decoder", "decoder", "encoder")

Module = TypeVar("Module", bound=nn.Module)


def config(kind: str = "decoder", **changes: Any) -> clearhead.ModelConfig:
    """A small configuration; `positions="rope"` and the like are short for their tables."""
    changes = {**SMALL, "kind": kind, **changes}
    if isinstance(changes.get("positions"), str):
        changes["positions"] = {"kind": changes["positions"]}
    if changes.get("positions", {}).get("kind") == "learned":
        changes["positions"].setdefault("max_length", 2100)
    if kind == "encoder":
        changes.setdefault("head", {"kind": "none"})
    return clearhead.configure(**changes)


def randomise(module: Module, seed: int = 0) -> Module:
    """Every parameter random and none at a value that hides a mistake: norm weights not 1, biases not 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(module.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            scale = 0.3 if parameter.dim() < 2 else parameter.size(-1) ** -0.5
            parameter.copy_(noise * scale + (1 if "norm" in name and name.endswith("weight") else 0))
    return module


def model(kind: str = "decoder", seed: int = 0, **changes: Any) -> Any:
    """A small random model in evaluation, in float64 so that differences are mistakes and not rounding."""
    return randomise(clearhead.build(config(kind, **changes)), seed).double().eval()


def tokens(*shape: int, seed: int = 0, vocabulary: int = SMALL["vocab_size"]) -> Tensor:
    return torch.randint(vocabulary, shape, generator=torch.Generator().manual_seed(seed))


def normal(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    """Standard normal numbers in float64."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.requires_grad_(grad)


def close(found: Tensor, wanted: Tensor, rounding: float = 1e-11, name: str = "tensors") -> None:
    """Equal up to rounding, relative to the size of the numbers."""
    size = max(1.0, wanted.detach().abs().max().item()) if wanted.numel() else 1.0
    torch.testing.assert_close(
        found, wanted, rtol=rounding, atol=rounding * size, msg=lambda text: f"{name} differ: {text}"
    )


def all_close(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], rounding: float = 1e-11) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        close(found[name], wanted[name], rounding, name)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """By name, of every parameter; one that got none fails."""
    result = {}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} got no gradient"
        result[name] = parameter.grad
    return result


def lengths_to_real(lengths: list[int], width: int, side: str = "right") -> Tensor:
    """(B, T), True at real tokens."""
    count, at = torch.tensor(lengths)[:, None], torch.arange(width)[None]
    return at < count if side == "right" else at >= width - count
