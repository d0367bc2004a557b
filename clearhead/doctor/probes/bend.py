"""No two linear maps meet without a bend between them: together they would be one linear map.

Matrix products are watched, and what becomes of their results: a view, a copy, a bias or a number keeps a result
linear, everything else bends or mixes it. A middle that is narrower than both sides is a factorisation, and meant.
A gate is there to bend: where two results are multiplied and neither was bent, it is worth a warning. So is a norm
alone between two maps, where neither its input nor its output goes anywhere else.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from clearhead.doctor.finding import ERROR, WARNING, Finding
from clearhead.doctor.subject import Subject, outputs
from clearhead.doctor.watch import number, own_line

NORMS = {"native_layer_norm", "_fused_rms_norm"}
COPIES = {"clone", "_to_copy", "contiguous", "alias", "detach", "native_dropout"}


@dataclass(frozen=True)
class Linear:
    """The result of a product with a parameter."""

    name: str
    inside: int
    outside: int
    kept: Tensor  # alive, so that its memory is not mistaken for another's


@dataclass(frozen=True)
class Pair:
    """Two maps, one straight after the other."""

    first: Linear
    second: str
    outside: int
    where: str


def memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


class Straight(TorchDispatchMode):
    """Follows results of linear maps until something bends them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {memory(p): name for name, p in model.named_parameters()}
        self.linear: dict[int, Linear] = {}
        self.pairs: list[Pair] = []
        self.products: dict[int, tuple[Linear, str, Tensor]] = {}  # of two linear results; the tensor is kept alive
        self.gates: list[Pair] = []
        self.normed: dict[int, tuple[Linear, int, Tensor]] = {}  # norms of linear results, and of whose memory
        self.uses: dict[int, int] = {}  # how many operations read what lies in this memory
        self.across: list[tuple[Pair, int, int]] = []  # two maps with a norm between, and the memory of both its sides

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        result = out[0] if isinstance(out, tuple) and out else out
        if isinstance(result, Tensor) and result.is_floating_point():
            for read in {memory(x) for x in args if isinstance(x, Tensor)} - {memory(result)}:
                self.uses[read] = self.uses.get(read, 0) + 1
            self.note(name, args, result)
        return out

    def only_normed(self) -> list[Pair]:
        """Maps with nothing but a norm between them, of which nothing else reads either side."""
        return [pair for pair, *sides in self.across if all(self.uses[side] == 1 for side in sides)]

    def note(self, name: str, args: tuple[Any, ...], out: Tensor) -> None:
        if name in NORMS and memory(args[0]) in self.linear:
            self.normed[memory(out)] = (self.linear[memory(args[0])], memory(args[0]), out)
        if name in ("mm", "addmm") or (name == "bmm" and memory(args[1]) in self.names):
            left, matrix = args[-2:]
            before, product = self.linear.get(memory(left)), self.products.get(memory(left))
            self.linear.pop(memory(out), None)
            if memory(matrix) not in self.names:
                return
            if product is not None:
                self.gates.append(Pair(product[0], self.names[memory(matrix)], out.size(-1), product[1]))
            first = self.normed.get(memory(left))
            if first is not None and left.size(-1) == first[0].outside:
                pair = Pair(first[0], self.names[memory(matrix)], out.size(-1), own_line())
                self.across.append((pair, first[1], memory(left)))
            if before is not None and left.size(-1) == before.outside:
                self.pairs.append(Pair(before, self.names[memory(matrix)], out.size(-1), own_line()))
            self.linear[memory(out)] = Linear(self.names[memory(matrix)], left.size(-1), out.size(-1), out)
            return
        if name == "mul" and self.both_linear(args):
            self.products[memory(out)] = (self.linear[memory(args[0])], own_line(), out)
        elif name.endswith("_") or not (args and isinstance(args[0], Tensor) and memory(out) == memory(args[0])):
            self.products.pop(memory(out), None)  # no view of one: its memory belongs to something else now
        source = self.linear.get(memory(args[0])) if args and isinstance(args[0], Tensor) else None
        if source is None:
            self.linear.pop(memory(out), None)
        elif name in COPIES or (name in ("add", "mul", "div") and self.harmless(args[1])):
            self.linear[memory(out)] = Linear(source.name, source.inside, source.outside, out)
        elif memory(out) != memory(args[0]) or (name.endswith("_") and not self.harmless(args[1:2])):
            self.linear.pop(memory(out), None)  # a new tensor that is no longer linear, or a bend in place

    def both_linear(self, factors: tuple[Any, ...]) -> bool:
        """Two different results of linear maps, of one shape: a gate, not a square or a scale."""
        if not all(isinstance(x, Tensor) and memory(x) in self.linear for x in factors[:2]):
            return False
        one, other = factors[:2]
        return bool(one.shape == other.shape and one.data_ptr() != other.data_ptr())

    def harmless(self, other: Any) -> bool:
        """A number or a bias."""
        other = other[0] if isinstance(other, tuple) and other else other
        # of a stack of them, what is added is one row
        return number(other) is not None or (
            isinstance(other, Tensor) and memory(other) in self.names and other.dim() <= 1
        )


def run(subject: Subject) -> list[Finding]:
    # with gradients: without them PyTorch's own layers run as one fused operation
    model, inputs = subject.model(), subject.inputs(2, 7, seed=62)
    with torch.enable_grad(), Straight(model) as straight:
        outputs(subject.spec.forward(model, *inputs))
    for severity in (ERROR, WARNING):
        for pair in straight.pairs:
            sides, middle = min(pair.first.inside, pair.outside), pair.first.outside
            if (middle > sides) if severity == ERROR else (middle == sides):
                message = (
                    f"nothing bends between {pair.first.name} and {pair.second}: {pair.first.inside} to {middle} to "
                    f"{pair.outside} features is one linear map"
                )
                evidence = {"first": pair.first.name, "second": pair.second, "wide": middle > sides}
                return [Finding("bend.missing", severity, message, evidence, (pair.where,))]
    for pair in straight.only_normed():
        if pair.first.outside >= min(pair.first.inside, pair.outside):
            message = f"nothing but a norm stands between {pair.first.name} and {pair.second}, where others bend"
            evidence = {"first": pair.first.name, "second": pair.second, "wide": True, "norm": True}
            return [Finding("bend.missing", WARNING, message, evidence, (pair.where,))]
    for gate in straight.gates:
        message = f"nothing bends the gate that {gate.second} reads: it is the product of two linear maps"
        evidence = {"first": gate.first.name, "second": gate.second, "wide": True, "gate": True}
        return [Finding("bend.missing", WARNING, message, evidence, (gate.where,))]
    return []
