"""What the arguments of a forward are for, as far as their names tell. What they really do is found by trying."""

import inspect
import re
from dataclasses import dataclass

from torch import nn

ROLES = (
    ("use_cache", r"use_?(kv_?)?cache|incremental|^cache_?enabled"),
    ("cache", r"cache|past|^kv|presents|^mems?$|layer_state"),
    ("padding", r"pad"),
    ("mask", r"mask|attn_?bias|valid|^real"),
    ("segments", r"segment|token_?type|type_ids"),
    ("offset", r"start_?pos|offset|input_?pos|^pos(ition)?s?(_ids?)?$|position_ids|cache_position"),
    ("lengths", r"len(gth)?s?$"),
    ("labels", r"^labels?$|^targets?$|^y$|^gold|next_tokens|^lm_labels"),
    ("memory", r"^xa$|memory$|enc(oder)?_?(out|hidden|states)|^context$"),
    ("embeds", r"embeds|embedding"),
)
SECOND = r"^(tgt|trg|target|dec(oder)?|y|output|out|ys|out_seq)(?!_?mask)"
SOURCE = r"src|source|enc|memory|cross|^e_|inp(ut)?_"
TARGET = r"tgt|trg|target|dec|look|future|subsequent|causal|^d_|out(put)?_"


@dataclass(frozen=True)
class Argument:
    """One argument of a forward."""

    name: str
    role: str
    required: bool
    side: str = ""  # "source" or "target", for masks whose name tells


def role_of(parameter: inspect.Parameter) -> str:
    for role, pattern in ROLES:
        if re.search(pattern, parameter.name.lower()):
            return role
    return "tokens"


def arguments(model: nn.Module) -> list[Argument]:
    """The arguments of a model's forward, with what their names say of them."""
    try:
        given = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return [Argument("", "tokens", True)]
    named = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    found = []
    for number, parameter in enumerate(named):
        role = role_of(parameter)
        needed = parameter.default is inspect.Parameter.empty
        if role in ("padding", "mask") and isinstance(parameter.default, bool):
            role = "flag"
        if role == "labels" and needed:
            role = "tokens"  # a forward that cannot do without: the decoder's input
        if role == "lengths" and number == 0:
            role = "tokens"
        if role == "tokens" and number > 0 and not needed and not second(parameter.name):
            role = "other"
        found.append(Argument(parameter.name, role, needed, side(parameter.name)))
    return found


def second(name: str) -> bool:
    """Does the name say that these are the decoder's tokens?"""
    return bool(re.search(SECOND, name.lower()))


def side(name: str) -> str:
    lower = name.lower()
    if re.search(r"memory|cross", lower):
        return "source"
    if re.search(TARGET, lower):
        return "target"
    return "source" if re.search(SOURCE, lower) else ""


def tokens_of(found: list[Argument]) -> list[Argument]:
    """The token inputs: one, or the source and the target."""
    every = [one for one in found if one.role == "tokens"]
    needed = [one for one in every if one.required]
    if len(needed) >= 2:
        return needed[:2]
    if len(every) >= 2 and any(second(one.name) for one in every[1:]):
        return [every[0], next(one for one in every[1:] if second(one.name))]
    return every[:1]
