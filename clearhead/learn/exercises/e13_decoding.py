"""Greedy decoding, then one step at a time with a cache."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from clearhead.learn.exercise import Bug, Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.decoding import MISTAKES

BOS, EOS, VOCAB = 1, 2, 13
SIZES = {"B": 3, "T": 6, "padded": 1}
SIX = {"B": 2, "T": 5, "steps": 6, "padded": 1}


@cache
def trained() -> Any:
    """A small Transformer that copies lists: with random weights one token is written for ever, which hides bugs.

    It goes on behind its end, as models do.
    """
    from safetensors.torch import load

    from clearhead.transformer import Transformer

    with torch.random.fork_rng(devices=[]):  # an answer that draws by chance draws the same each time
        model = Transformer(VOCAB, 24, 2, 48, 2, 0.0).double()
    data = resources.files("clearhead.learn").joinpath("weights/copier.safetensors").read_bytes()
    model.load_state_dict({name: value.double() for name, value in load(data).items()})
    return model.eval()


def copier() -> Any:
    """One for each call, so that nothing left in it reaches another."""
    return twin(trained())


def unsure() -> Any:
    """The same one with logits a twentieth as large: the same token is the likeliest, but not by much."""
    model = copier()
    norm = model.decoder.layers[-1].feed_forward_residual.norm
    with torch.no_grad():
        norm.weight.mul_(0.05)
        norm.bias.mul_(0.05)
    return model


def twin(module: Any) -> Any:
    """A copy with weights of its own; `copy.deepcopy` does the same and takes most of a check's time."""
    made = object.__new__(type(module))
    for name, value in vars(module).items():
        made.__dict__[name] = type(value)(value) if isinstance(value, dict) else value
    for name, parameter in made._parameters.items():
        made._parameters[name] = torch.nn.Parameter(parameter.detach().clone())
    for name, child in made._modules.items():
        made._modules[name] = twin(child)
    return made


def lists(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    """Lists of different lengths, the first one neither the shortest nor the longest; (B, T), filled up with 0."""
    lengths = torch.tensor([3, sizes.T, 1, 2][: sizes.B]).clamp(max=sizes.T)
    if not sizes.padded:
        lengths[:] = sizes.T
    source = draw.integers(3, VOCAB, sizes.B, sizes.T)
    real = torch.arange(sizes.T) < lengths[:, None]
    return source.masked_fill(~real, 0), real


def lists_and_target(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
    source, real = lists(sizes, draw)
    target = draw.integers(3, VOCAB, sizes.B, sizes.steps)
    target[:, 0] = BOS
    return source, real, target


def written(run: Run, source: Tensor, source_real: Tensor) -> Any:
    return run.greedy(unsure(), source, source_real, BOS, EOS, 8)


def written_without_mask(run: Run, source: Tensor) -> Any:
    return run.greedy(copier(), source, None, BOS, EOS, 8)


def cut_off(run: Run, source: Tensor, source_real: Tensor) -> Any:
    return run.greedy(copier(), source, source_real, BOS, EOS, 3)


def request(run: Run, model: Any, source: Tensor, source_real: Tensor | None) -> Callable[[Tensor], Tensor]:
    """One step after the other, from the newest token to its logits."""
    memory, kept = model.encode(source, source_real), {}  # type: ignore[var-annotated]

    def step(token: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = run.step(model, token, memory, source_real, kept)
        return logits.detach()

    return step


def steps(run: Run, source: Tensor, source_real: Tensor | None, target: Tensor, model: Any = None) -> Tensor:
    """The logits of each step, (B, steps, V)."""
    step = request(run, model or copier(), source, source_real)
    return torch.cat([step(token) for token in target.split(1, dim=1)], dim=1)


def two_requests(run: Run, source: Tensor, source_real: Tensor, target: Tensor) -> Any:
    """Another source through the same model, and then this one in turns with it."""
    model, tokens = copier(), target.split(1, dim=1)
    other = request(run, model, source.flip(1) % 7 + 3, None)
    before = [other(token) for token in tokens[:2]]
    mine = request(run, model, source, source_real)
    turns = [(mine(token), other(token)) for token in tokens]
    return [torch.cat([*before, *(theirs for _, theirs in turns)], 1), torch.cat([own for own, _ in turns], 1)]


def source_kept(run: Run) -> dict[str, Any] | None:
    """Does the first step of a request ignore its own source?"""
    source, _, target = lists_and_target(Sizes({**SIX, "steps": 1, "padded": 0}), run.draw())
    one, two = steps(run, source, None, target), steps(run, source.flip(1), None, target)
    return {} if torch.equal(one, two) else None


class Counting(TorchFunctionMode):
    """How many numbers torch computes; putting tensors side by side is no computation."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and getattr(func, "__name__", "") not in ("cat", "stack", "concat"):
            self.numbers += result.numel()
        return result


def cost_stays(run: Run) -> dict[str, Any] | None:
    """What a late step computes, over what an early one does."""
    model, (source, real, target) = copier(), lists_and_target(Sizes({**SIX, "steps": 12}), run.draw())
    memory, kept, counts = model.encode(source, real), {}, []  # type: ignore[var-annotated]
    with torch.no_grad():
        for i in range(target.size(1)):
            with Counting() as counter:
                run.step(model, target[:, i : i + 1], memory, real, kept)
            counts.append(counter.numbers)
    if counts[-1] < 2 * counts[1]:
        return None
    return {
        "called": "step(…), 12 times",
        "got": f"step 12 computes {counts[-1] / counts[1]:.1f} times as much as step 2",
        "wanted": "about as much",
        "kind": "cost",
    }


def picture(parts: Mapping[str, Any]) -> str:
    source = torch.tensor([[7, 3, 11, 5], [9, 4, 0, 0]])
    answer = parts["greedy"](copier(), source, source != 0, BOS, EOS, 8)
    return "\n".join(f"{row} -> {out}" for row, out in zip(([7, 3, 11, 5], [9, 4]), answer, strict=True))


GREEDY = "greedy(model, source, source_real, bos=1, eos=2, longest={})   (source, source_real)"
STEP = "{} step(model, token, memory, source_real, cache)   (source, source_real, tokens)"

EXERCISE = Exercise(
    name="decoding",
    question="How does it write?",
    about="The model is trained on all positions at once, but it writes one token after the other: what the last "
    "position finds likeliest is appended and read in the next round. Then the same without waste: earlier tokens do "
    "not change, so their keys and values can be kept, and each step computes the newest token alone.",
    section="section 3.1",
    shapes="""
    greedy: source (B, T), source_real (B, T) or None -> a list of B lists of token numbers, without bos and eos
        every row ends at its own first eos; `longest` tokens at most are written
    step: token (B, 1), memory (B, T, D), source_real (B, T) or None, cache -> logits (B, 1, V)
        the same as the last position of decode, for all the tokens that were given so far
        `cache` is an empty dict at the first step of a request, and the same dict again at each next one:
        what you put in is yours to choose. Two requests have two dicts.
        A late step must not cost much more than an early one.
    The model is in evaluation; `model.encode`, `model.decode`, `model.embedding`, `model.decoder.layers` are there.
    """,
    parts=("greedy", "step"),
    helpers=("keys_and_values", "look"),
    trials=(
        Trial("greedy", lists, written, "rows of different lengths", SIZES, gradients=False, shown=GREEDY.format(8)),
        Trial("greedy", lists, cut_off, "at most 3 tokens", SIZES, gradients=False, shown=GREEDY.format(3)),
        Trial(
            "greedy",
            lambda sizes, draw: lists(Sizes({**sizes, "padded": 0}), draw)[:1],
            written_without_mask,
            "no padding, source_real=None",
            {"B": 2, "T": 3},
            gradients=False,
            shown="greedy(model, source, None, bos=1, eos=2, longest=8)   (source)",
        ),
        Trial("step", lists_and_target, steps, "", {**SIX, "steps": 1}, gradients=False, shown=STEP.format("one")),
        Trial("step", lists_and_target, steps, "step after step", SIX, gradients=False, shown=STEP.format("six times")),
        Trial(
            "step",
            lists_and_target,
            two_requests,
            "in turns with another request",
            SIX,
            gradients=False,
            shown=STEP.format("six times"),
        ),
    ),
    properties=(
        Property("cache.kept", "step", source_kept, "the source of an earlier request is read"),
        Property("cost.grows", "step", cost_stays, "right, but each step costs more than the last", rejects=True),
    ),
    mistakes=MISTAKES,
    hints=(
        "Which position says what comes next? And which keys and values can still change?",
        "target (B, 1), (B, 2), …; for step: x (B, 1, D), cached keys and values (B, H, n, d), the memory's once.",
        "`model.decode(target, memory, source_real)[:, -1].argmax(-1, keepdim=True)`; "
        "`k = torch.cat([cache[...], k], 2)` for each layer, and the position counted in the cache",
    ),
    after="It writes. A model that was trained to copy, by your search:",
    lab="kv-cache",
    ours="clearhead/model/cache.py",
    bug=Bug(
        "step",
        (("old_k, old_v = cache[number]", "old_k, old_v = cache[0]"),),
        "step(model, torch.tensor([[1]]), memory, None, {})  # the first step is right",
        "all layers read the first layer's slot; with one layer, or at the first step, nobody would notice",
    ),
    picture=picture,
    seconds=20.0,
)
