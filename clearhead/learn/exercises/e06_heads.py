"""Splitting the features among heads, and merging them again."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import SIZES, Bug, Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.heads import MISTAKES
from clearhead.learn.pictures import heat

EQUAL = {"B": 3, "S": 3, "H": 3, "d": 3}
USUAL = {letter: SIZES[letter] for letter in "BSHd"}


def readable(sizes: Sizes) -> Tensor:
    """(B, S, D): 1000 · row + 100 · token + feature, so that a number says where it comes from."""
    row, token, feature = (torch.arange(sizes[letter], dtype=torch.float64) for letter in "BSD")
    return 1000 * row[:, None, None] + 100 * token[:, None] + feature


def dealt(sizes: Sizes) -> Tensor:
    """(B, H, S, d): the same, as it should be split."""
    sizes = Sizes({**sizes, "D": sizes.D})
    right = torch.empty(sizes.B, sizes.H, sizes.S, sizes.d, dtype=torch.float64)
    for head in range(sizes.H):
        right[:, head] = readable(sizes)[..., head * sizes.d : (head + 1) * sizes.d]
    return right


def whole(sizes: Sizes, draw: Draw) -> tuple[Tensor, int]:
    return readable(Sizes({**sizes, "D": sizes.D})), sizes.H


def heads(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (dealt(sizes),)


def random_whole(sizes: Sizes, draw: Draw) -> tuple[Tensor, int]:
    return draw.normal(sizes.B, sizes.S, sizes.D), sizes.H


def random_heads(sizes: Sizes, draw: Draw) -> tuple[Tensor]:
    return (draw.normal(sizes.B, sizes.H, sizes.S, sizes.d),)


def there_and_back(run: Run, x: Tensor, heads: int) -> Any:
    return run.merge_heads(run.split_heads(x, heads))


def whence(x: Tensor) -> dict[str, Tensor]:
    """Of readable numbers: their row, token and feature."""
    return {"row": x // 1000, "token": x % 1000 // 100, "feature": x % 100}


def split(run: Run) -> tuple[Tensor, Tensor] | None:
    """What was split, and what should have come, if only the numbers differ."""
    wanted = dealt(run.sizes)
    got = run.split_heads(*whole(run.sizes, run.draw()))
    return None if got.shape != wanted.shape or torch.equal(got, wanted) else (got, wanted)


def merged(run: Run) -> tuple[Tensor, Tensor] | None:
    wanted = readable(Sizes({**run.sizes, "D": run.sizes.D}))
    got = run.merge_heads(dealt(run.sizes))
    return None if got.shape != wanted.shape or torch.equal(got, wanted) else (got, wanted)


def astray(found: tuple[Tensor, Tensor] | None, what: str) -> dict[str, Any] | None:
    """Do numbers of another row, or of another token, or of another feature of the right token, stand in a place?"""
    if found is None:
        return None
    if not torch.equal(found[0].flatten().sort().values, found[1].flatten().sort().values):
        return {} if what == "lost" else None
    got, wanted = whence(found[0]), whence(found[1])
    first = next((kind for kind in ("row", "token", "feature") if not torch.equal(got[kind], wanted[kind])), "")
    return {} if first == what else None


def asked(part: str, what: str, message: str) -> Property:
    result = split if part == "split_heads" else merged
    return Property(f"heads.{what}", part, lambda run: astray(result(run), what), message, sizes=USUAL)


def both_views(run: Run) -> dict[str, Any] | None:
    """Wrong by a view, and merged by another, so that the round trip shows nothing."""
    x, count = whole(run.sizes, run.draw())
    got = run.split_heads(x, count)
    view = x.reshape(run.sizes.B, run.sizes.H, run.sizes.S, run.sizes.d)
    return {} if torch.equal(got, view) and torch.equal(run.merge_heads(got), x) else None


def picture(parts: Mapping[str, Any]) -> str:
    own = parts["split_heads"](torch.arange(12.0).view(1, 1, 12), 3)[0, :, 0].long()  # (H, d): a head's features
    return heat(torch.zeros(3, 12).scatter(1, own, 1.0), "head", "feature")


SPLIT = "x.view(batch, length, heads, width // heads).transpose(1, 2)"

EXERCISE = Exercise(
    name="heads",
    question="How are features dealt to heads?",
    about="One attention gives each query one mixture. With H heads it gets H of them, each by its own measure of "
    "what fits: head h works on d = D/H features of every token. Nothing is computed here, numbers only change their "
    "places, and a wrong place raises no error: shapes agree, and tokens are scrambled.",
    section="section 3.2.2",
    shapes="""
    split_heads: x (B, S, D), H -> (B, H, S, d)   head h holds features h·d up to h·d + d - 1 of each token
    merge_heads: (B, H, S, d) -> (B, S, D)        the inverse, checked by itself too
    In the check the numbers say where they belong: 1000 · row + 100 · token + feature.
    """,
    parts=("split_heads", "merge_heads"),
    trials=(
        Trial("split_heads", whole, sizes=USUAL, gradients=False),
        Trial("split_heads", whole, sizes=EQUAL, gradients=False),
        Trial("split_heads", whole, sizes={**USUAL, "H": 1}, gradients=False, what="one head"),
        Trial("split_heads", whole, sizes={**USUAL, "B": 1, "S": 1}, gradients=False, what="one token"),
        Trial("split_heads", random_whole, sizes=USUAL),
        Trial("merge_heads", heads, sizes=USUAL, gradients=False),
        Trial("merge_heads", heads, sizes=EQUAL, gradients=False),
        Trial("merge_heads", heads, sizes={**USUAL, "H": 1}, gradients=False, what="one head"),
        Trial("merge_heads", heads, sizes={**USUAL, "B": 1, "S": 1}, gradients=False, what="one token"),
        Trial("merge_heads", random_heads, sizes=USUAL),
        Trial(
            "merge_heads",
            random_whole,
            there_and_back,
            sizes=USUAL,
            what="there and back",
            shown="merge_heads(split_heads(x, heads))",
        ),
    ),
    properties=(
        Property(
            "heads.both", "split_heads", both_views, "the round trip is perfect, each part alone wrong", sizes=USUAL
        ),
        asked("split_heads", "row", "numbers of one row of the batch came into another"),
        asked("split_heads", "token", "numbers of one token came to another"),
        asked("split_heads", "feature", "a head holds other features than its own"),
        asked("split_heads", "lost", "numbers are lost, or there twice"),
        asked("merge_heads", "row", "numbers of one row of the batch came into another"),
        asked("merge_heads", "token", "numbers of one token came to another"),
        asked("merge_heads", "feature", "the features are in another order"),
        asked("merge_heads", "lost", "numbers are lost, or changed"),
    ),
    mistakes=MISTAKES,
    hints=(
        "In memory the last dimension varies fastest. Which dimension may be cut in two by a view, and which may not?",
        "(B, S, D) is cut into (B, S, H, d); then S and H change places: (B, H, S, d). Merging goes the same way back.",
        "`x.view(B, S, heads, D // heads).transpose(1, 2)`, and `x.transpose(1, 2).flatten(-2)`",
    ),
    after="Heads can now look at different things at the same time. Your heads and the features they own:",
    lab="heads",
    ours="clearhead/model/attention.py",
    picture=picture,
    bug=Bug(
        "split_heads",
        ((SPLIT, "x.view(batch, length, width // heads, heads).permute(0, 3, 1, 2)"),),
        "split_heads(torch.randn(2, 5, 12), 3).shape  # (2, 3, 5, 4), as it should be",
        "the features were dealt in turn, like cards: training would not notice, but weights from elsewhere would "
        "meet the wrong features",
    ),
)
