"""Greedy continuations as the description's `generate` gives them, whatever shape it prefers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from clearhead.doctor.describe import EncoderDecoder
from clearhead.doctor.finding import NotArmed
from clearhead.doctor.subject import Subject

Inputs = tuple[Tensor, ...]


def continued(
    subject: Subject, model: nn.Module, inputs: Inputs, count: int, *real: Tensor, whole: bool = False
) -> Tensor:
    """The prompt and `count` tokens after it, (B, S + count); fewer where the model stops early.

    `inputs` are (tokens,) or (source, start), `real` a padding mask for a `generate` that takes one. A generator that
    takes one row at a time gets them one at a time; with `whole` it is given the batch or nothing.
    """
    spec: Any = subject.spec
    if getattr(spec, "generate", None) is None:
        raise NotArmed("no generate() described")
    inputs = tuple(x.contiguous() for x in inputs)
    given = inputs if isinstance(spec, EncoderDecoder) else inputs[-1:]
    try:
        tokens = spec.generate(model, *given, count, *real)
    except Exception:
        if whole or inputs[-1].size(0) == 1:
            raise
        rows = range(inputs[-1].size(0))
        parts = [continued(subject, model, pick(inputs, i), count, *pick(real, i), whole=True) for i in rows]
        if len({part.size(1) for part in parts}) > 1:
            raise
        return torch.cat(parts)
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.size(0) != inputs[-1].size(0):
        raise NotArmed(f"generate() returned {type(tokens).__name__}, wanted (B, S + count) tokens")
    prompt = inputs[-1]
    starts = tokens.size(1) >= prompt.size(1) and torch.equal(tokens[:, : prompt.size(1)], prompt)
    return tokens if starts else torch.cat([prompt, tokens], dim=1)


def prompts(subject: Subject, batch: int, length: int, seed: int) -> Inputs:
    """What generate() starts from: (tokens,), or (source, start) with the one token that a translation starts with."""
    inputs = subject.inputs(batch, length, seed)
    return (inputs[0], inputs[1][:, :1].contiguous()) if isinstance(subject.spec, EncoderDecoder) else inputs


def pick(inputs: Inputs, row: int) -> Inputs:
    return tuple(x[row : row + 1] for x in inputs)


CHOOSING = {"argmax", "max", "topk", "sort", "multinomial"}


def never_said(subject: Subject, model: nn.Module, inputs: Inputs) -> list[int]:
    """Padding, and the few tokens that a generator takes out of every choice: it need not say them."""
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == subject.vocab]
    found = {*subject.pads().tolist(), *(m.padding_idx for m in tables if m.padding_idx is not None)}
    rows, start = inputs[-1].size(0), inputs[-1].size(1)
    try:
        with torch.no_grad(), Choices(rows, subject.vocab) as choices:
            tokens = continued(subject, model, inputs, 3)
    except Exception:
        return sorted(found)
    if chosen := choices.logits(tokens.size(1) - start):
        barred = torch.stack([x[:, : subject.vocab] == -torch.inf for x in chosen]).flatten(0, 1).all(dim=0)
        # of those that only ever fall behind the best k there are many
        found |= set(barred.nonzero().flatten().tolist()) if int(barred.sum()) <= subject.vocab // 4 else set()
    return sorted(found)


def behind(logits: Tensor, chosen: Tensor, never: list[int]) -> Tensor:
    """How far the chosen tokens (B,) are below the likeliest (B, V) of those that are ever said."""
    best = logits.index_fill(-1, torch.tensor(never, dtype=torch.long), -torch.inf).amax(dim=-1)
    return best - logits.gather(1, chosen[:, None]).squeeze(1)


class Choices(TorchFunctionMode):
    """Notes what each step of a generator chooses from: (rows, V), logits or probabilities."""

    def __init__(self, rows: int, vocab: int) -> None:
        super().__init__()
        self.rows, self.vocab = rows, vocab
        self.seen: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = args[0] if args else None
        if getattr(func, "__name__", "") in CHOOSING and isinstance(given, Tensor) and self.fits(given):
            self.seen.append(given.detach().reshape(self.rows, -1).double().clone())
        return func(*args, **(kwargs or {}))

    def fits(self, x: Tensor) -> bool:
        wide = x.dim() > 0 and x.size(-1) >= self.vocab
        return wide and x.numel() == self.rows * x.size(-1) and x.is_floating_point()

    def logits(self, steps: int) -> list[Tensor] | None:
        """One tensor of logits a step, or None where it cannot be told which choice belongs to which."""
        if len(self.seen) != steps:
            return None
        return [as_logits(x) for x in self.seen]


def as_logits(x: Tensor) -> Tensor:
    """Probabilities as their logarithms, anything else as it is."""
    chances = bool(x.ge(0).all()) and bool((x.sum(-1) - 1).abs().lt(1e-4).all())
    return x.log() if chances else x


def unlike(ours: Tensor, theirs: Tensor) -> float:
    """How far one row of logits is from being another, up to a temperature and a constant, relative to its spread."""
    both = ours.isfinite() & theirs.isfinite()
    if int(both.sum()) < 5 or ours.size(-1) != theirs.size(-1):
        return 0.0  # all but a few were filtered out
    a, b = ours[both] - ours[both].mean(), theirs[both] - theirs[both].mean()
    rest = a - b * (a @ b) / (b @ b).clamp(min=1e-300)
    return float(rest.abs().max() / a.std().clamp(min=1e-300))


def lively(subject: Subject, seed: int) -> nn.Module:
    """A model of your own whose attention prefers few tokens, so that what it looks at decides more."""
    model = subject.fresh(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1 and parameter.is_floating_point():
                parameter.mul_(1.0 + 0.5 * (seed % 4))
    return model
