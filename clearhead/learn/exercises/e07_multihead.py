"""Multi-head attention, for a sequence that looks at itself and for one that looks at another."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import SIZES, Bug, Draw, Exercise, Misfit, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.multihead import MISTAKES
from clearhead.learn.pictures import heat

NAME = "MultiHeadAttention"
USUAL = {letter: SIZES[letter] for letter in ("B", "S", "T", "H", "d", "padded")}
SQUARE = {**USUAL, "T": 5}
EQUAL = {**USUAL, "B": 3, "S": 3, "T": 3, "d": 3}
SHOWN = f"{NAME}(width, heads)(x, memory)"
MASKED = f"{NAME}(width, heads)(x, memory, may_attend)"


def built(run: Run) -> Any:
    return run.module(NAME, run.sizes.D, run.sizes.H)


def use(run: Run, *arguments: Tensor) -> Any:
    return built(run)(*arguments)


def use_on_itself(run: Run, x: Tensor, may_attend: Tensor) -> Any:
    return built(run)(x, x, may_attend)


def use_twice(run: Run, x: Tensor, memory: Tensor) -> Any:
    """The same module again, on something else: nothing may be left over from the first time."""
    module = built(run)
    return module(x, memory), module(x + 1, 2 * memory - 1)


def in_training(run: Run, x: Tensor, memory: Tensor) -> Any:
    return built(run).train()(x, memory)


def both(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return draw.normal(sizes.B, sizes.S, sizes.D), draw.normal(sizes.B, sizes.T, sizes.D)


def causal(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    return draw.normal(sizes.B, sizes.S, sizes.D), torch.ones(sizes.S, sizes.S, dtype=torch.bool).tril()


def padded(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return *both(sizes, draw), draw.real(sizes)[:, None, None, :]


def each_head(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    """A mask of its own for every row, head and query."""
    mask = draw.integers(0, 2, sizes.B, sizes.H, sizes.S, sizes.T).bool()
    mask[..., 0] = True  # every query sees something
    return *both(sizes, draw), mask


def loud(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    """Hidden tokens whose scores would be large."""
    x, memory, mask = padded(sizes, draw)
    return 30 * x, torch.where(mask[:, 0, 0, :, None], memory, 3000 * memory), mask


def large(sizes: Sizes, draw: Draw) -> tuple[Tensor, ...]:
    return tuple(30 * x for x in both(sizes, draw))


def weights_fit(run: Run) -> dict[str, Any] | None:
    try:
        built(run)
    except Misfit as misfit:
        return {"got": misfit.got}
    return None


def all_used(run: Run) -> dict[str, Any] | None:
    module = built(run)
    names, parameters = zip(*module.named_parameters(), strict=True)
    gradients = torch.autograd.grad(module(*both(run.sizes, run.draw())).sum(), parameters, allow_unused=True)
    unused = [name for name, x in zip(names, gradients, strict=True) if x is None or not x.any()]
    return {"parameters": unused} if unused else None


def memory_read(run: Run) -> dict[str, Any] | None:
    """Does another memory of the same length give something else?"""
    module, (x, memory) = built(run), both(run.sizes, run.draw())
    return {} if torch.allclose(module(x, memory), module(x, memory + run.draw(1).normal(*memory.shape))) else None


def future_hidden(run: Run) -> dict[str, Any] | None:
    """Change token j: which outputs before it move? Asked only of what is right without a mask."""
    module, (x, mask) = built(run), causal(run.sizes, run.draw())
    if not torch.allclose(module(x, x), built(Run(run.ours, run.ours, run.sizes, run.seed))(x, x), atol=1e-4):
        return None
    before = module(x, x, mask)
    seen = set()
    for j in range(1, run.sizes.S):
        changed = x.clone()
        changed[:, j] += 1
        moved = (module(changed, changed, mask) - before).abs().amax((0, 2)) > 1e-9
        seen |= {(i, j - i) for i in range(j) if moved[i]}
    if not seen:
        return None
    offsets = sorted({offset for _, offset in seen})
    return {"positions": sorted({i for i, _ in seen}), "offsets": offsets, "depth_one_offsets": offsets}


def rows_alone(run: Run) -> dict[str, Any] | None:
    module, (x, memory) = built(run), both(run.sizes, run.draw())
    alone = torch.allclose(module(x, memory)[:1], module(x[:1], memory[:1]), atol=1e-6)
    return None if alone else {"only": "company"}


def picture(parts: Mapping[str, Any]) -> str:
    """Who looks at whom in each head, read off with values that tell the tokens apart."""
    draw, heads, tokens = Draw(7), 3, 6
    width = heads * tokens
    module = parts[NAME](width, heads).double()
    place = torch.eye(tokens, width, dtype=torch.float64).repeat(heads, 1)  # every head's values: which token it is
    state = {name: torch.zeros_like(x) for name, x in module.state_dict().items()}
    state |= {"value.weight": place, "out.weight": torch.eye(width, dtype=torch.float64)}
    state |= {f"{name}.weight": draw.normal(width, width, scale=0.4) for name in ("query", "key")}
    module.load_state_dict(state)
    x = draw.normal(1, tokens, width)
    x[0, :, :tokens] = torch.eye(tokens)
    with torch.no_grad():
        weights = module(x, x, torch.ones(tokens, tokens, dtype=torch.bool).tril())[0]  # (S, H·S)
    drawn = [
        heat(part, "query" if head == 0 else " ", f"head {head}") for head, part in enumerate(weights.chunk(3, -1))
    ]
    lines = [text.splitlines() for text in drawn]
    return "\n".join(
        "  ".join(f"{part:<{len(rows[0])}}" for part, rows in zip(row, lines, strict=True)).rstrip()
        for row in zip(*lines, strict=True)
    )


EXERCISE = Exercise(
    name="multihead",
    question="How do H attentions run at once?",
    about="Queries come from the sequence that asks, keys and values from the one that answers; in self-attention "
    "they are the same. Each is first projected by a matrix of its own, which holds those of all heads side by side; "
    "then every head looks with its own share of the features, and what they found is merged and mixed once more.",
    section="section 3.2.2",
    shapes="""
    MultiHeadAttention(width D, heads H); its constructor is given, with the parameters' names
    x (B, S, D)        asks: `query` projects it
    memory (B, T, D)   answers: `key` and `value` project it; another sequence than x, or x itself
    may_attend         broadcasts to (B, H, S, T): (S, T), (B, 1, 1, T) or whole; True = may look; None = all may
    -> (B, S, D)       the heads' results side by side, through `out`
    Scores are divided by the root of a head's width d = D/H, and large ones must stay finite.
    The module keeps nothing from one call to the next. There is no dropout here.
    """,
    parts=(NAME,),
    trials=(
        Trial(NAME, both, use, what="another sequence, no mask", sizes=USUAL, shown=SHOWN),
        Trial(
            NAME,
            causal,
            use_on_itself,
            what="on itself, with a causal mask",
            sizes=SQUARE,
            shown=f"{NAME}(width, heads)(x, x, may_attend), given (x, may_attend)",
        ),
        Trial(NAME, padded, use, what="another sequence, padded", sizes=USUAL, shown=MASKED),
        Trial(NAME, both, in_training, what="in training", sizes=USUAL, shown=SHOWN, gradients=False),
        Trial(NAME, both, use, what="another sequence of the same length", sizes=SQUARE, shown=SHOWN),
        Trial(NAME, each_head, use, what="a mask for each head", sizes=USUAL, shown=MASKED),
        Trial(NAME, padded, use, what="all sizes alike", sizes=EQUAL, shown=MASKED),
        Trial(NAME, both, use, what="one head", sizes={**USUAL, "H": 1}, shown=SHOWN),
        Trial(NAME, both, use_twice, what="twice, on different sequences", sizes=USUAL, gradients=False, shown=SHOWN),
        Trial(
            NAME,
            large,
            use,
            what="scores of hundreds",
            sizes=USUAL,
            gradients=False,
            kind="unstable",
            tolerance=1e-2,
            shown=SHOWN,
        ),
        Trial(NAME, loud, use, what="hidden keys of large scores", sizes=USUAL, shown=MASKED, gradients=False),
    ),
    properties=(
        Property("parity.weights", NAME, weights_fit, "the parameters are not those of the constructor", sizes=USUAL),
        Property("parameters.unused", NAME, all_used, "some parameters are never used", sizes=USUAL),
        Property("multihead.memory", NAME, memory_read, "the memory changes nothing", sizes=USUAL),
        Property("future.visible", NAME, future_hidden, "a position sees what its mask hides", sizes=SQUARE),
        Property("batch.coupled", NAME, rows_alone, "a row gives something else in company", sizes=USUAL),
    ),
    mistakes=MISTAKES,
    hints=(
        "Who asks, and who answers? And what is done after the heads are merged?",
        "q (B, H, S, d) from x; k and v (B, H, T, d) from the memory; mixed (B, H, S, d), merged (B, S, D).",
        "`self.out(merge_heads(masked_attention(q, k, v, may_attend)))` with "
        "`q = split_heads(self.query(x), self.heads)`, and k and v alike from the memory",
    ),
    after="Everything that looks in the Transformer is this module. Three of your heads, each with its own taste:",
    lab="heads",
    ours="clearhead/model/attention.py",
    picture=picture,
    bug=Bug(
        NAME,
        (("v = split_heads(self.value(memory)", "v = split_heads(self.key(memory)"),),
        "MultiHeadAttention(12, 3)(torch.randn(2, 5, 12), torch.randn(2, 7, 12)).shape  # (2, 5, 12), as it should be",
        "the values came from the keys' projection: everything ran and even learned, and `value` never moved",
    ),
)
