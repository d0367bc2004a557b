"""The smallest forward pass with its attention: a few words through one layer of an untrained model, as grids."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.style import Style
from rich.table import Table
from rich.text import Text

from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.model import ModelConfig


@dataclass(frozen=True)
class HeadWeights:
    """The weights of one head of one attention; `weights[i][j]` is how much query i looks at key j."""

    title: str
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]


def untrained_attention(config: "ModelConfig", text: str, head: int = 1, seed: int = 1) -> list[HeadWeights]:
    """Run the words of `text` through the first layer of each stack and keep what one head (from 1) looked at."""
    import torch

    from clearhead.cost.account import at_most
    from clearhead.model import build, trace

    words = text.split()
    if not words:
        raise InputError("the text for the attention grid has no words")
    if not 1 <= head <= config.heads:
        raise InputError(f"head {head} does not exist: the model has heads 1 to {config.heads}")
    known = sorted(set(words))
    ids = torch.tensor([[known.index(word) for word in words]])
    # one layer and only these words: little work and memory for a model of any size
    small = replace(at_most(config, 1), vocab_size=len(known))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = build(small).eval()
        with trace(model) as taken:
            model(*([ids, ids] if config.kind == "encoder-decoder" else [ids]))
    result = []
    for path, weights in taken.named("weights").items():
        stack, attention = path.split(".")[0], path.split(".")[-2]
        title = f"{stack} {attention.replace('_', '-')}"
        result.append(HeadWeights(title, words, words, weights[0, head - 1].tolist()))
    return result


def grid(seen: HeadWeights) -> Group:
    """Percentages, darker for more; a dot where the weight is zero, as it is behind a mask."""
    table = Table(box=None, padding=(0, 0))
    table.add_column("", style="cyan")
    for word in seen.keys:
        table.add_column(f" {word}", justify="right", header_style="cyan", min_width=4)
    for word, row in zip(seen.queries, seen.weights, strict=True):
        table.add_row(f"{word} ", *map(cell, row))
    return Group(Text(seen.title, style="bold"), table)


def cell(weight: float) -> Text:
    if weight == 0:
        return Text(" · ", style="dim")
    depth = round(255 * (1 - 0.8 * weight))  # white to deep blue
    ink = "black" if weight < 0.5 else "white"
    return Text(f"{100 * weight:3.0f} ", style=Style(color=ink, bgcolor=f"rgb({depth},{depth},255)"))
