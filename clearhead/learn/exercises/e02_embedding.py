"""From token numbers to vectors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.embedding import MISTAKES
from clearhead.learn.pictures import heat

SMALL = {"B": 2, "S": 5, "V": 13, "D": 12}  # distinct, and D is no square
EQUAL = {"B": 3, "S": 3, "V": 3, "D": 3}


def tokens_and_table(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    """Tokens with the first and the last of the vocabulary among them."""
    tokens = draw.integers(0, sizes.V, sizes.B, sizes.S)
    tokens[0, 0], tokens[-1, -1] = 0, sizes.V - 1
    return tokens, draw.normal(sizes.V, sizes.D)


def without_zero(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    tokens, table = tokens_and_table(sizes, draw)
    if sizes.V < 2:
        raise ValueError("without token 0 there must be another")
    return tokens.clamp(min=1), table


def without_last(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    """No text has every token of the vocabulary."""
    tokens, table = tokens_and_table(sizes, draw)
    if sizes.V < 2:
        raise ValueError("without the last token there must be another")
    return tokens.clamp(max=sizes.V - 2), table


def long_rows(sizes: Sizes, draw: Draw) -> tuple[Tensor, Tensor]:
    tokens, table = tokens_and_table(sizes, draw)
    return tokens, 20 * table


def same_factor(run: Run) -> dict[str, Any] | None:
    """Are the vectors right but for one factor?"""
    tokens, table = tokens_and_table(run.sizes, run.draw())
    got, wanted = run.embed(tokens, table), run.ours["embed"](tokens, table)
    if got.shape != wanted.shape or torch.allclose(got, wanted, rtol=1e-4):
        return None
    factor = (got * wanted).sum() / (wanted * wanted).sum()
    return {"factor": factor.item()} if torch.allclose(got, factor * wanted, rtol=1e-4) else None


def token_zero(run: Run) -> dict[str, Any] | None:
    """Is token 0 treated as others are, in value and in gradient?"""
    tokens, table = tokens_and_table(run.sizes, run.draw())
    table = table.requires_grad_()
    out = run.embed(torch.zeros_like(tokens), table)
    if not out.any():
        return {"value": True}
    (gradient,) = torch.autograd.grad(out.sum(), table, allow_unused=True)
    (other,) = torch.autograd.grad(run.embed(torch.ones_like(tokens), table).sum(), table, allow_unused=True)
    lost = gradient is not None and other is not None and not gradient[0].any() and bool(other.any())
    return {"value": False} if lost else None


def picture(parts: Mapping[str, Any]) -> str:
    draw = Draw(2)
    return heat(parts["embed"](torch.tensor([[3, 1, 4, 1, 5]]), draw.normal(8, 16) / 4)[0], "token", "feature")


EXERCISE = Exercise(
    name="embedding",
    question="How does a number become a vector?",
    about="A token is a number, and numbers say nothing about meaning: 17 is not more than 16. So each token has a "
    "row of a table, a vector that training moves to where it is useful. The rows start small, their features "
    "with variance 1/D; times √D these have the size of one, as the positions have that exercise 3 adds to them.",
    section="section 3.4",
    shapes="""
    tokens (B, S)     integers from 0 to V - 1; token 0 is a token like any other
    table (V, D)      a row for each token; it stays as it is, and gradients must reach it
    -> (B, S, D)      for each token its row, times √D
    """,
    parts=("embed",),
    trials=(
        Trial("embed", tokens_and_table, sizes=SMALL, gradients=False),
        Trial("embed", without_zero, sizes=SMALL, gradients=False, what="without token 0"),
        Trial("embed", without_last, sizes=SMALL, gradients=False, what="without the last token"),
        Trial("embed", tokens_and_table, sizes=EQUAL, gradients=False),
        Trial("embed", tokens_and_table, sizes={**SMALL, "B": 1, "S": 1}, gradients=False, what="one token"),
        Trial("embed", long_rows, sizes=SMALL, gradients=False, what="a table of long rows"),
        Trial("embed", tokens_and_table, sizes=SMALL),
        Trial("embed", without_zero, sizes=SMALL, what="without token 0"),
    ),
    properties=(
        Property("embedding.factor", "embed", same_factor, "the vectors are right but for one factor", sizes=SMALL),
        Property("embedding.zero", "embed", token_zero, "token 0 is treated otherwise than the rest", sizes=SMALL),
    ),
    mistakes=MISTAKES,
    hints=(
        "How long is a row whose D features have variance 1/D, and how long is one whose features have variance 1?",
        "(V, D) indexed by (B, S) gives (B, S, D).",
        "`table[tokens] * math.sqrt(table.size(1))`",
    ),
    after="Token 1 stands twice in this sentence of five tokens, and has the same row each time:",
    lab="weight-tying",
    ours="clearhead/model/embedding.py",
    picture=picture,
)
