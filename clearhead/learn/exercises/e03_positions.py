"""Sinusoids: a vector for each position."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearhead.learn.exercise import Draw, Exercise, Property, Run, Sizes, Trial
from clearhead.learn.mistakes.positions import MISTAKES
from clearhead.learn.pictures import heat

FEW = {"S": 7, "D": 16}
LONG = {"S": 6000, "D": 6}  # rows far out, where 16 bits and tables of 5,000 rows end


def length_and_width(sizes: Sizes, draw: Draw) -> tuple[int, int]:
    if sizes.D % 2:
        raise ValueError("the width is even")
    return sizes.S, sizes.D


def few(sizes: Mapping[str, int], what: str = "") -> Trial:
    return Trial("sinusoids", length_and_width, sizes=sizes, gradients=False, what=what)


def tables(run: Run) -> tuple[Tensor, Tensor] | None:
    """Theirs and ours, if theirs has the right shape and the wrong values."""
    got, wanted = run.sinusoids(run.sizes.S, run.sizes.D), run.ours["sinusoids"](run.sizes.S, run.sizes.D)
    if got.shape != wanted.shape or torch.allclose(got.double(), wanted, atol=1e-3):
        return None
    return got.double().detach(), wanted


def columns_in_order(run: Run) -> dict[str, Any] | None:
    """Are all columns there, but in another order?"""
    if (found := tables(run)) is None:
        return None
    got, wanted = found
    near = (got.T[:, None] - wanted.T[None]).abs().amax(-1) < 1e-3  # (D, D)
    return {} if bool((near.sum(1) == 1).all() and (near.sum(0) == 1).all()) else None


def rows_in_order(run: Run) -> dict[str, Any] | None:
    """Do the rows begin with another position than 0?"""
    if (found := tables(run)) is None:
        return None
    got, _ = found
    for offset in (1, 2, -1):
        later = run.ours["sinusoids"](run.sizes.S + 2, run.sizes.D)[max(offset, 0) :]
        here = got[max(-offset, 0) :]
        if torch.allclose(here, later[: len(here)], atol=1e-3):
            return {"offset": offset}
    return None


def pairs_on_circles(run: Run) -> dict[str, Any] | None:
    """Columns 2i and 2i + 1 must be sine and cosine of one angle: their squares sum to one."""
    if (found := tables(run)) is None:
        return None
    squares = found[0].square().unflatten(-1, (-1, 2)).sum(-1)
    return {"large": bool(found[0].abs().max() > 1.01)} if (squares - 1).abs().max() > 1e-2 else None


def frequencies(run: Run) -> dict[str, Any] | None:
    """Circles, but turning at another speed: how much of a turn each pair makes from position 0 to 1."""
    if (found := tables(run)) is None or pairs_on_circles(run) is not None:
        return None
    got, wanted = (torch.atan2(x[1, 0::2], x[1, 1::2]) for x in found)
    zero = torch.atan2(found[0][0, 0::2], found[0][0, 1::2])
    if zero.abs().max() > 1e-3 or torch.allclose(got, wanted, atol=1e-4):
        return None
    growing = 10_000 ** (torch.arange(0, run.sizes.D, 2, dtype=torch.float64) / run.sizes.D)
    reversed = torch.allclose(found[0][1, 0::2], growing.sin(), atol=0.05)  # large angles, in 32 bits perhaps
    return {"reversed": reversed}


def far_rows(run: Run) -> dict[str, Any] | None:
    """Right at the beginning, wrong far out: do rows repeat, do neighbours share a row, or do rows end?"""
    length, width = run.sizes.S, run.sizes.D
    wanted = run.ours["sinusoids"](length, width)
    if not torch.allclose(run.sinusoids(20, width).double(), wanted[:20], atol=2e-2):
        return None
    try:
        got = run.sinusoids(length, width).double()
    except Exception:
        return {"ends": True, "collide": False}
    if got.shape != wanted.shape:
        return {"ends": True, "collide": False}
    if torch.allclose(got, wanted, atol=1e-2):
        return None
    # rounding lets neighbours far out share a row; a table that ends gives one row, or other rows, from there on
    shared = bool((got[1:-50] == got[:-51]).all(-1).any()) and not bool((got[-50:] == got[-1]).all())
    return {"ends": not shared, "collide": shared}


def remembered(run: Run) -> dict[str, Any] | None:
    """Is a longer or wider table asked for, and that of an earlier call given?"""
    first = tuple(run.sinusoids(2, 10).shape)
    return {} if first in (tuple(run.sinusoids(9, 10).shape), tuple(run.sinusoids(2, 14).shape)) else None


def picture(parts: Mapping[str, Any]) -> str:
    return heat(parts["sinusoids"](20, 32), "position", "feature: each pair of columns turns more slowly")


EXERCISE = Exercise(
    name="positions",
    question="How does a set become a sequence?",
    about="Attention compares tokens by what they are and not by where they stand: to it a sentence is a set. So a "
    "vector of its position is added to each token's. Every pair of its columns is a hand of a clock, and each hand "
    "turns more slowly than the one before, from one radian a token to 10000 times less: near positions look alike, "
    "and a step of k is the same rotation wherever it begins.",
    section="section 3.5",
    shapes="""
    sinusoids: length S, width D (even) -> (S, D), floating-point (32 bits at least), a row for each position from 0
    column 2i      sin(position / 10000^(2i/D))   i from 0 to D/2 - 1
    column 2i + 1  cos(position / 10000^(2i/D))   of the same angle
    Any length is asked for: rows beyond 5000 must be right too, to about 1e-3.
    """,
    parts=("sinusoids",),
    trials=(
        few({"S": 3, "D": 6}),
        few(FEW),
        few({"S": 1, "D": 6}, "one position"),
        few({"S": 7, "D": 6}, "as many positions, and fewer columns"),
        few({"S": 4, "D": 2}, "one pair of columns"),
        few({"S": 6, "D": 6}, "as many positions as columns"),
        Trial("sinusoids", length_and_width, sizes=LONG, gradients=False, what="a long sequence", tolerance=1e-3),
    ),
    properties=(
        Property("position.columns", "sinusoids", columns_in_order, "the columns are in another order", sizes=FEW),
        Property("position.rows", "sinusoids", rows_in_order, "the rows begin with another position", sizes=FEW),
        Property("position.pairs", "sinusoids", pairs_on_circles, "two columns of a pair differ in angle", sizes=FEW),
        Property("position.frequencies", "sinusoids", frequencies, "pairs turn at another speed", sizes=FEW),
        Property("position.remembered", "sinusoids", remembered, "the table of an earlier call is given again"),
        Property("position.far", "sinusoids", far_rows, "rows far out are wrong", sizes=LONG),
    ),
    mistakes=MISTAKES,
    hints=(
        "Which columns share a frequency, and which of the two is the sine?",
        "Positions (S, 1) times frequencies (D/2,) are angles (S, D/2); their sines and cosines take turns in (S, D).",
        "`angle = position / 10000 ** (2 * i / width)`, then "
        "`torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)`",
    ),
    after="A token now knows where it stands. Your table, one row a position; the columns on the left turn fast:",
    lab="positions",
    ours="clearhead/model/positions.py",
    picture=picture,
)
