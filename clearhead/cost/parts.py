"""Which part of a model is at work: the question behind every table of costs.

`watch(model, switch)` calls `switch(part)` whenever another part takes over, so that whoever counts (account.py) or
measures (clock.py) need only know the part of the moment. Forward, modules say when they begin and end. Backward,
there are no modules, only nodes of the autograd graph: each is claimed, while the forward pass builds it, for the part
that was at work, and says so again when its turn comes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import Node


@dataclass(frozen=True)
class Part:
    """One row of a table of costs: `decoder`, `cross-attention`, `query`."""

    stack: str  # encoder, decoder, or "" for what belongs to neither
    group: str  # one of GROUPS
    name: str = ""  # the piece of the group, one of PIECES; "" where there is only one


GROUPS = (
    "embedding",
    "positions",
    "self-attention",
    "cross-attention",
    "feed-forward",
    "norms",
    "residuals",
    "head",
)
PIECES = ("", "query", "key", "value", "mixing", "out", "inner", "gate", "activation", "outer")


def part_of(path: str) -> Part:
    """The part of a module, from its path: `decoder.layers.3.cross_attention.query`."""
    names = path.split(".")
    stack = names[0] if names[0] in ("encoder", "decoder") else ""
    last = names[-1]
    if "norm" in last:  # wherever it stands: after the embedding, around a sub-layer, after a stack, in a head
        return Part(stack, "norms")
    for attention in ("self_attention", "cross_attention"):
        if attention in names:  # between the projections: scores, softmax and the mix of values
            return Part(stack, attention.replace("_", "-"), "mixing" if last == attention else last)
    if "feed_forward" in names:
        return Part(stack, "feed-forward", "activation" if last == "feed_forward" else last)
    if "positions" in names or "attention_inputs" in names:  # they are masks, ALiBi's bias and RoPE's rotation
        return Part(stack, "positions")
    if stack:
        return Part(stack, "residuals")
    return Part("", "embedding" if names[0] == "embedding" else "head")


Switch = Callable[[Part | None], None]


@contextmanager
def watch(model: nn.Module, switch: Switch) -> Iterator[None]:
    """Call `switch` with the part that starts to work now, or None while only the watching itself does.

    Holds for one `model(...)` inside the `with`, and the backward pass from its output, which ends without a call.
    """
    at_work: list[Part] = []
    claimed: dict[Node, Part] = {}

    def enter(part: Part) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            switch(None)
            if at_work:  # what the inputs went through since the last module was the work of the one around it
                claim(claimed, (*arguments, *named.values()), at_work[-1])
            at_work.append(part)
            switch(part)

        return hook

    def leave(module: nn.Module, arguments: tuple[Any, ...], output: object) -> None:
        switch(None)
        part = at_work.pop()
        claim(claimed, output if isinstance(output, tuple) else (output,), part)
        if at_work:
            switch(at_work[-1])
        else:
            for node, owner in claimed.items():
                node.register_prehook(lambda gradients, owner=owner: switch(owner))

    hooks = []
    for path, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(enter(part_of(path)), with_kwargs=True))
        hooks.append(module.register_forward_hook(leave))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def claim(claimed: dict[Node, Part], made: tuple[object, ...], part: Part) -> None:
    """Give `part` every node behind these tensors that no part has yet."""
    waiting = [tensor.grad_fn for tensor in made if isinstance(tensor, Tensor) and tensor.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node not in claimed:
            claimed[node] = part
            waiting.extend(following for following, _ in node.next_functions if following is not None)
