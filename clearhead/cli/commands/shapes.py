"""`clearhead shapes`: the shape cheat-sheet of a real pass, and where parameters, FLOPs and memory go."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from clearhead.cli import completion, tables
from clearhead.cli.preset_or_run import chosen_model
from clearhead.cli.tables import amount, percent
from clearhead.errors import InputError
from clearhead.settings import to_dict

if TYPE_CHECKING:
    from clearhead.cost.account import Cost, Size
    from clearhead.cost.parts import Part
    from clearhead.cost.sheet import Shape
    from clearhead.model import ModelConfig

WORDS = "the dog saw the cat"
MOST = 1_000_000  # of anything; products of more are beyond what can be counted
PresetOrRun = Annotated[
    str,
    typer.Argument(
        metavar="PRESET|RUN",
        help=f"{', '.join(completion.PRESETS)}, or the folder of a run.",
        autocompletion=completion.presets_and_runs,
    ),
]
Batch = Annotated[int, typer.Option("--batch", "-b", min=1, max=MOST, metavar="B", help="Sequences in a batch, B.")]
Length = Annotated[
    int,
    typer.Option(
        "--length", "-l", min=1, max=MOST, metavar="S", help="Tokens in each, S; the target's, where there are two."
    ),
]
SourceLength = Annotated[
    int | None, typer.Option(min=1, max=MOST, metavar="S", help="Tokens in each source. Default: as --length.")
]
Vocabulary = Annotated[
    int | None, typer.Option("--vocab", min=1, max=MOST, metavar="V", help="Another vocabulary size, V.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change any setting of the model, e.g. d_ff=512. Repeatable."),
]
AsJson = Annotated[bool, typer.Option("--json", help="The same for programs, each stack apart.")]


def shapes(
    model: PresetOrRun = "base",
    batch: Batch = 8,
    length: Length = 128,
    source_length: SourceLength = None,
    vocabulary: Vocabulary = None,
    changes: Changes = None,
    attention: Annotated[bool, typer.Option("--attention", help="Also print which word looks at which.")] = False,
    text: Annotated[str | None, typer.Option(help=f"The words for --attention; '{WORDS}' unless given.")] = None,
    head: Annotated[int | None, typer.Option(min=1, metavar="H", help="The head for --attention, from 1.")] = None,
    as_json: AsJson = False,
) -> None:
    """The shapes of a pass, and where parameters, FLOPs and memory go.

    The model itself runs, on tensors that have a shape but no contents: every preset fits every machine.

    \b
    Examples:
      clearhead shapes                             # the paper's base model
      clearhead shapes gpt2 --batch 1 --length 1024
      clearhead shapes base --set kernels=plain    # without the fused kernels
      clearhead shapes tiny --attention --text "who looks at whom"
      clearhead shapes big --json
    """
    from clearhead.cli.untrained_attention import grid, untrained_attention

    if not attention and (text is not None or head is not None):
        raise InputError(f"{'--head' if text is None else '--text'} is for --attention, which is not given")
    text, head = WORDS if text is None else text, head or 1
    with Console(stderr=True).status("running the model without its memory"):
        from clearhead.cost.account import Size, account
        from clearhead.cost.sheet import sheet

        config = chosen_model(model, changes or [], vocabulary)
        size = Size(batch, length, source_length)
        seen = untrained_attention(config, text, head) if attention else []  # first: what it refuses need not wait
        rows, costs = sheet(config, size), account(config, size)
    if as_json:
        print(json.dumps(as_data(model, config, size, rows, costs) | {"attention": [asdict(one) for one in seen]}))
        return
    console = tables.screen()
    console.print(f"[bold]{model}[/]: {describe(config)}\n")
    console.print(f"[bold]Shapes[/]   {legend(config, size)}")
    console.print(shape_table(rows))
    console.print(f"\n[bold]Costs[/]   {conditions(config, size)}")
    console.print(cost_table(costs))
    for line in answers(config, size, costs):
        console.print(line)
    if seen:
        console.print(f"\n[bold]Attention[/]   layer 1, head {head}; each row: where that word looks, in percent\n")
        console.print(Columns([Padding(grid(one), (0, 4, 0, 0)) for one in seen]))
        console.print("\n[dim]Untrained, so the weights are random; but each row sums to 100 and masks hold.[/]")


def as_data(
    name: str, config: "ModelConfig", size: "Size", rows: "list[Shape]", costs: "dict[Part, Cost]"
) -> dict[str, Any]:
    """Everything the tables show, as plain values."""
    from clearhead.cost.account import total

    return {
        "model": name,
        "config": to_dict(config),
        "size": {"batch": size.batch, "length": size.length, "source_length": size.source},
        "shapes": [asdict(row) for row in rows],
        "parts": [asdict(part) | asdict(cost) for part, cost in costs.items()],
        "total": asdict(total(costs.values())),
    }


def describe(config: "ModelConfig") -> str:
    """The model in a line."""
    layers = " + ".join(
        f"{number} {stack}"
        for stack, number in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers))
        if number
    )
    return (
        f"{layers} layers, {config.positions.kind} positions, {config.norm.placement}-norm, "
        f"{config.activation} in the feed-forward"
    )


def legend(config: "ModelConfig", size: "Size") -> str:
    """What the letters stand for."""
    letters = {
        "B": size.batch,
        "S": size.length,
        "D": config.d_model,
        "H": config.heads,
        "G": config.key_value_heads,
        "d": config.d_head,
        "F": config.d_ff,
        "V": config.vocab_size,
    }
    return "  ".join(f"{letter} {number:,}" for letter, number in letters.items())


def conditions(config: "ModelConfig", size: "Size") -> str:
    """What the numbers of the cost table are numbers of."""
    tokens = f"{size.batch} × {size.length} tokens"
    if config.kind == "encoder-decoder":
        tokens = f"{size.batch} × ({size.source} source + {size.length} target) tokens"
    return f"one pass of {tokens}, float32, {config.kernels} kernels"


def shape_table(rows: "list[Shape]") -> Table:
    """One line a tensor, under the sub-layer that makes it; k and v, which are made alike, share a line."""
    table = tables.plain_table("", "tensor", "shape", "here", numbers=False)
    table.add_column()  # the one that gives way on a narrow screen
    before = None
    for row in rows:
        if row.name == "v":
            continue
        meaning = "found by, and handed over" if row.name == "k" else row.meaning
        if row.stack and (before is None or row.stack != before.stack):
            table.add_row(f"[bold]{row.stack}[/] ×{row.layers}")
        table.add_row(
            "" if before is not None and sublayer(row) == sublayer(before) else sublayer(row),
            "k, v" if row.name == "k" else row.name.split("#")[0],
            f"({','.join(row.letters)})",
            "×".join(map(str, row.sizes)),
            Text(meaning, "dim", no_wrap=True, overflow="ellipsis"),
        )
        before = row
    return table


def sublayer(row: "Shape") -> str:
    """Where the tensor is made, as a reader would say it: a sub-layer, with the residual and the norm around it."""
    if row.stack:
        return "  " + row.module.split(".")[0].removesuffix("_residual").replace("_", "-")
    if row.name.endswith("#2"):
        return "embedding again"  # of the target: one table serves both sides
    return {"": "head", "output": "head"}.get(row.module, row.module.split(".")[0])


def cost_table(costs: "dict[Part, Cost]") -> Table:
    """Where the parameters, the FLOPs, the activations and the cache are."""
    table = tables.plain_table("", "parameters", "", "FLOPs", "", "activations", "", "KV cache")
    whole = tables.add(costs.values())
    for group, piece, cost in [*tables.rows(costs), ("total", "", whole)]:
        table.add_row(
            f"  {piece}" if piece else group,
            f"{cost.parameters:,}" if cost.parameters else "–",
            percent(cost.parameters, whole.parameters),
            amount(cost.forward_flops),
            percent(cost.forward_flops, whole.forward_flops),
            amount(cost.activation_bytes, "B"),
            percent(cost.activation_bytes, whole.activation_bytes),
            amount(cost.cache_bytes, "B"),
            style="dim" if piece else "bold" if group == "total" else "",
        )
    return table


def answers(config: "ModelConfig", size: "Size", costs: "dict[Part, Cost]") -> list[str]:
    """What people ask of such a table, answered from it."""
    groups = {group: cost for group, piece, cost in tables.rows(costs) if not piece}
    whole = tables.add(costs.values())
    inner = groups["feed-forward"].parameters
    layers = tables.add(cost for part, cost in costs.items() if part.stack).parameters
    largest = max(groups, key=lambda group: groups[group].parameters)
    weights = 4 * whole.parameters
    lines = [
        "[dim]mixing is softmax(q kᵀ/√d) v; FLOPs are those of the matrix products, forward[/]\n",
        f"Do most of the parameters live in the feed-forward? It has {percent(inner, whole.parameters)} of all "
        f"({'the largest group' if largest == 'feed-forward' else f'{largest} has more'}) "
        f"and {percent(inner, layers)} of those in the layers.",
        f"Training holds weights, gradients and Adam's two moments, {amount(4 * weights, 'B')}, and the activations, "
        f"{amount(whole.activation_bytes, 'B')}.",
        f"The backward pass takes another {amount(whole.backward_flops)}FLOPs, "
        f"{whole.backward_flops / whole.forward_flops:.2f} times the forward pass.",
    ]
    if whole.cache_bytes:
        one = amount(config.decoder_layers * 2 * config.key_value_heads * config.d_head * 4, "B")
        again = ", and as much for each source token" if config.kind == "encoder-decoder" else ""
        lines.append(f"Decoding caches {one} for each token of each sequence{again}.")
    return lines
