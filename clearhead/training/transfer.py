"""Beginning from weights that there are already: what fits is taken over, what does not is named.

Tensors are matched by name and shape. The rows of an embedding belong to tokens, not to numbers, so another vocabulary
is matched by what its tokens spell: a row is taken where both have the token, and initialised where only the new one
has it. A head for other classes, a layer more, a table of another length start anew, and the run's log says so.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.errors import InputError, require
from clearhead.model import Transformer
from clearhead.run import MODEL, Run
from clearhead.tokenizer.base import ROLES, Tokenizer
from clearhead.training.config import Recipe, TokenizerSettings

OF_TOKENS = {"embedding.weight", "output.weight", "output.bias"}  # tensors with a row for each token


@dataclass(frozen=True)
class Fate:
    """What became of a tensor, or of the same one of several layers."""

    name: str
    shape: tuple[int, ...]
    what: str


def with_body(recipe: Recipe, start: Run) -> Recipe:
    """The recipe, with the sizes of the model that it begins from where it says nothing of its model."""
    if recipe.model:
        return recipe
    table = dict(start.settings.get("model", {}))
    wanted, found = recipe.data.model_kind()[0], table.get("kind", "encoder-decoder")
    fits = wanted == found or (wanted == "encoder" and found == "encoder-decoder")
    require(fits, f"{start.path} is of the kind {found!r}, and the data are for {wanted!r}: give a table `model`")
    same_head = recipe.data.model_kind()[1].get("kind") == table.get("head", {}).get("kind")
    for key in ("kind", "vocab_size", "source_vocab_size", *(() if same_head and wanted != "encoder" else ("head",))):
        table.pop(key, None)
    if wanted == "encoder":
        table.pop("decoder_layers", None)
    return replace(recipe, model=table)


def inherited_tokenizers(recipe: Recipe, start: Run) -> tuple[Tokenizer | None, Tokenizer | None]:
    """Those of the run that is begun from, where the recipe asks for none and its data do not bring their own."""
    makes_its_own = recipe.data.kind() in ("lists", "dates", "languages")
    if makes_its_own or recipe.tokenizer != TokenizerSettings():
        return None, None
    return start.tokenizer(), start.source_tokenizer()


def take_over(
    model: Transformer, tokenizer: Tokenizer, source_tokenizer: Tokenizer | None, start: Run, checkpoint: str = "best"
) -> list[Fate]:
    """Copy into the model what fits of a run's weights; what became of each tensor of either, in order."""
    old = start.build(checkpoint)  # which refuses what is damaged, or is not what its settings say
    weights, where = old.state_dict(), start.checkpoint(checkpoint) / MODEL
    old_tokenizer, old_source = start.tokenizers(old.config)
    fates, own = [], model.state_dict()
    for name, tensor in own.items():
        theirs, what = weights.get(name), "taken"
        shape = tuple(tensor.shape)
        tokens: tuple[Tokenizer | None, Tokenizer | None] = (None, None)
        if name in OF_TOKENS and (name == "embedding.weight" or tensor.size(0) == model.config.vocab_size):
            tokens = tokenizer, old_tokenizer
        elif name == "source_embedding.weight":
            tokens = source_tokenizer, old_source
            theirs = weights.get(name, weights.get("embedding.weight"))
        if theirs is None:
            what = "new: there is no such tensor there"
        elif tokens[0] is not None and theirs.shape[1:] == tensor.shape[1:]:
            what = copy_rows(tensor, theirs, tokens[0], tokens[1] or old_tokenizer)
        elif theirs.shape != tensor.shape:
            what = f"new: {tuple(theirs.shape)} there"
        else:
            tensor.copy_(theirs)
        fates.append(Fate(name, shape, what))
    fates += [Fate(name, tuple(t.shape), "left behind") for name, t in weights.items() if name not in own]
    # a bias or two may fit by chance
    if not any("taken" in fate.what for fate in fates if len(fate.shape) > 1):
        raise InputError(f"{where}: not one matrix fits the model of the recipe; with no table `model`, it gets theirs")
    return fates


@torch.no_grad()
def copy_rows(tensor: Tensor, theirs: Tensor, new: Tokenizer, old: Tokenizer) -> str:
    """Take the rows of the tokens that both have; says how many."""
    there = {key: number for number, key in spellings(old)}
    pairs = [(number, there[key]) for number, key in spellings(new) if key in there and there[key] < len(theirs)]
    same = all(a == b for a, b in pairs) and len(pairs) == sum(1 for _ in spellings(new))
    if same and new.size == old.size and len(theirs) == len(tensor):
        tensor.copy_(theirs)
        return "taken"
    if not pairs:
        return f"new: none of its {new.size:,} tokens is there"
    mine, others = (torch.tensor(column) for column in zip(*pairs, strict=True))
    tensor[mine] = theirs[others].to(tensor.dtype)
    return f"{len(pairs):,} of {new.size:,} tokens taken, the rest new"


def spellings(tokenizer: Tokenizer) -> Iterator[tuple[int, Any]]:
    """Each token's id and what it is known by in any vocabulary: the part it plays, its special name, or its bytes."""
    parts = {number: role for role in ROLES if (number := tokenizer.marked(role)) is not None}
    names = {number: name for name, number in tokenizer.special.items()}
    pieces = getattr(tokenizer, "ids", {})
    inner = {number for name, number in pieces.items() if name.startswith("##")} if isinstance(pieces, dict) else set()
    unused = set(tokenizer.unused())
    for number in range(tokenizer.size):
        if number in parts:
            yield number, ("part", parts[number])
        elif number in names:
            yield number, ("special", names[number])
        elif number not in unused:
            yield number, ("inside" if number in inner else "text", tokenizer.token_bytes(number))


def fate_lines(fates: list[Fate]) -> list[str]:
    """One readable table: the same tensor of all layers in one line, with how many they are."""
    groups: dict[tuple[str, str], list[Fate]] = {}
    for fate in fates:
        groups.setdefault((re.sub(r"\.layers\.\d+\.", ".layers.*.", fate.name), fate.what), []).append(fate)
    taken = sum(len(group) for (_, what), group in groups.items() if what == "taken")
    lines = [f"{taken} of {len(fates)} tensors taken over as they are" + (":" if taken < len(fates) else "")]
    width = max(len(name) for name, _ in groups)
    for (name, what), group in groups.items():
        if what != "taken":
            times = f" ({len(group)} layers)" if len(group) > 1 else ""
            lines.append(f"    {name:<{width}}  {'×'.join(map(str, group[0].shape)):>12}  {what}{times}")
    return lines


def freeze(model: nn.Module, patterns: tuple[str, ...]) -> int:
    """Keep the parameters that match a pattern (`embedding.*`, `encoder.layers.[01].*`) as they are; how many numbers
    that is."""
    named = dict(model.named_parameters())
    for pattern in patterns:
        found = [name for name in named if fnmatchcase(name, pattern)]
        require(bool(found), f"training.freeze: no parameter is called {pattern!r}; the first is {next(iter(named))!r}")
        for name in found:
            named[name].requires_grad_(False)
    left = any(parameter.requires_grad for parameter in named.values())
    require(left, f"training.freeze = {list(patterns)} leaves nothing to train")
    return sum(parameter.numel() for parameter in named.values() if not parameter.requires_grad)
