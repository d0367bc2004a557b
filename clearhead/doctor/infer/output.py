"""Where the logits are in what a forward returns: the tensor itself, part of a tuple, a dataclass or a dictionary.

An output is described by a pattern, "{}[0]" or "{}.logits": the call goes where the braces are.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

NAMES = ("logits", "last_hidden_state", "prediction_logits", "output", "out", "scores")
HEADS = r"generator|head|proj|out|fc|classifier|lm|decoder|linear"


def parts(result: Any, pattern: str = "{}", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in a result, with the pattern that leads to it; the likeliest first."""
    if isinstance(result, Tensor):
        yield pattern, result
    elif depth > 1 or result is None:
        return
    elif isinstance(result, dict):
        for key in sorted(result, key=lambda key: key not in NAMES if isinstance(key, str) else 1):
            # a ModelOutput is a dictionary with attributes
            inner = f"{pattern}.{key}" if hasattr(result, str(key)) else f"{pattern}[{key!r}]"
            yield from parts(result[key], inner, depth + 1)
    elif isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        for number, part in enumerate(result[:8]):
            yield from parts(part, f"{pattern}[{number}]", depth + 1)
    else:
        named = getattr(result, "_fields", None) or [one.name for one in fields(result)] if is_dataclass(result) else []
        named = named or getattr(result, "_fields", ()) or [name for name in NAMES if hasattr(result, name)]
        for name in sorted(named, key=lambda name: name not in NAMES):
            yield from parts(getattr(result, name), f"{pattern}.{name}", depth + 1)


def shaped(pattern: str, tensor: Tensor, rows: int, length: int, given: str, first: bool) -> tuple[str, Tensor] | None:
    """The tensor as (B, S, anything), and the pattern with what made it so; None if it has no such reading."""
    shape = tuple(tensor.shape)
    if not tensor.is_floating_point():
        return None
    if len(shape) == 3 and first and shape[:2] == (length, rows):
        return f"{pattern}.transpose(0, 1)", tensor.transpose(0, 1)
    if len(shape) == 3 and shape[:2] == (rows, length):
        return pattern, tensor
    if len(shape) == 3 and shape[0] == rows and shape[2] == length and shape[1] != length:
        return f"{pattern}.transpose(1, 2)", tensor.transpose(1, 2)
    if len(shape) == 2 and shape[0] == rows * length and shape[1] > 1:
        if first:
            return f"{pattern}.view({given}.size(1), {given}.size(0), -1).transpose(0, 1)", tensor.view(
                length, rows, -1
            ).transpose(0, 1)
        return f"{pattern}.view(*{given}.shape, -1)", tensor.view(rows, length, -1)
    return None


def is_logits(width: int, vocab: int) -> bool:
    """One for each token; some models pad their vocabulary to a round number."""
    return vocab <= width <= vocab + 128


def locate(result: Any, rows: int, length: int, vocab: int, given: str, first: bool) -> list[tuple[str, bool]]:
    """Patterns that give (B, S, anything), those over the vocabulary first, and whether they are logits."""
    found = []
    for pattern, tensor in parts(result):
        made = shaped(pattern, tensor, rows, length, given, first)
        if made is not None:
            found.append((made[0], is_logits(made[1].size(-1), vocab)))
    return sorted(found, key=lambda one: not one[1])


def last_only(result: Any, rows: int, vocab: int) -> bool:
    """Are there logits of the last position only, as when generating?"""
    shapes = [tuple(tensor.shape) for _, tensor in parts(result)]
    return any(shape in ((rows, 1), (rows,)) or (shape[:1] == (rows,) and shape[1:] == (1, vocab)) for shape in shapes)


def idle_heads(model: nn.Module, call: Any, width: int, vocab: int) -> list[str]:
    """Modules that the call leaves alone and that make logits from states: a generator that is applied outside."""
    busy: set[nn.Module] = set()
    hooks = [module.register_forward_hook(lambda module, *_: busy.add(module)) for module in model.modules()]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    found: list[str] = []
    for name, module in model.named_modules():
        if not name or module in busy or any(name.startswith(f"{other}.") for other in found):
            continue
        try:
            with torch.no_grad():
                out = module(torch.zeros(2, 3, width))
        except Exception:
            continue
        if isinstance(out, Tensor) and tuple(out.shape[:2]) == (2, 3) and is_logits(out.size(-1), vocab):
            found.append(name)
    return found
