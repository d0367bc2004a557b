"""`clearhead profile`: time and peak memory of a model by part, forward and backward, measured."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from clearhead.cli import tables
from clearhead.cli.commands.shapes import (
    AsJson,
    Batch,
    Changes,
    Length,
    PresetOrRun,
    SourceLength,
    Vocabulary,
    conditions,
    describe,
)
from clearhead.cli.preset_or_run import chosen_model
from clearhead.cli.tables import amount, milliseconds, percent
from clearhead.errors import InputError
from clearhead.ranges import MOST_THREADS
from clearhead.reading import memory
from clearhead.settings import to_dict

if TYPE_CHECKING:
    from clearhead.cost.account import Size
    from clearhead.cost.clock import Profile
    from clearhead.model import ModelConfig


def profile(
    model: PresetOrRun = "tiny",
    batch: Batch = 8,
    length: Length = 128,
    source_length: SourceLength = None,
    vocabulary: Vocabulary = None,
    changes: Changes = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, metavar="N", help="Passes to take the median of.")] = 5,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=MOST_THREADS, metavar="N", help="Threads for torch. Default: what torch chooses."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time and peak memory of a pass by part, forward and backward, measured on this machine's CPU.

    The model has random weights and the gradient starts at its output: no loss, no optimizer. Memory is above that
    of the weights. Unlike `clearhead shapes`, this allocates what the model needs.

    \b
    Examples:
      clearhead profile
      clearhead profile tiny --batch 32 --length 32 --threads 1
      clearhead profile base --set kernels=plain    # the code as it reads
      clearhead profile gpt2 --batch 1 --length 512 --json
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # before torch is loaded: its profiler likes to talk
    with Console(stderr=True).status("loading") as status:
        import torch

        from clearhead.cost.account import Size
        from clearhead.cost.clock import measure

        config = chosen_model(model, changes or [], vocabulary)
        size = Size(batch, length, source_length)
        check_memory(model, config, size)
        if threads is not None:
            torch.set_num_threads(threads)
        threads = torch.get_num_threads()
        measured = measure(config, size, rounds, status.update)
    if as_json:
        print(json.dumps(as_data(model, config, size, measured) | {"rounds": rounds, "threads": threads}))
        return
    console = tables.screen()
    console.print(f"[bold]{model}[/]: {describe(config)}\n")
    console.print(f"[bold]Measured[/]   {conditions(config, size)}")
    console.print(profile_table(measured))
    whole = measured.forward_seconds + measured.backward_seconds
    watched = sum(part.forward_seconds + part.backward_seconds for part in measured.parts.values())
    console.print(
        f"\nMedian of {rounds} passes on {threads} thread{'s' * (threads > 1)}. With nobody watching, forward takes "
        f"{milliseconds(measured.forward_seconds)} ms and backward {milliseconds(measured.backward_seconds)} ms: "
        f"the parts add up to {percent(watched, whole)} of it."
    )
    console.print(
        "[dim]Times in ms; kept is what the forward pass leaves for the backward pass, peak the most that was in use "
        "while the part ran, forward and backward.[/]"
    )


def check_memory(name: str, config: "ModelConfig", size: "Size") -> None:
    """Refuse what cannot fit before it is allocated: the system may give memory that it has not, and kill us later."""
    from clearhead.cost.account import account, total

    cost = total(account(config, size).values())
    wanted, there = 8 * cost.parameters + cost.activation_bytes, 2 * memory()  # a gradient beside each weight
    if wanted > there:
        place = Path(name) / "config.toml" if Path(name).is_dir() else name
        raise InputError(
            f"{place}: weights, gradients and activations of this size need {amount(wanted, 'B')} of "
            f"memory, and this machine has {amount(there, 'B')}; `clearhead shapes` counts without allocating"
        )


def as_data(name: str, config: "ModelConfig", size: "Size", measured: "Profile") -> dict[str, Any]:
    """Everything the table shows, as plain values."""
    return {
        "model": name,
        "config": to_dict(config),
        "size": {"batch": size.batch, "length": size.length, "source_length": size.source},
        "parts": [asdict(part) | asdict(one) for part, one in measured.parts.items()],
        "unwatched": {
            "forward_seconds": measured.forward_seconds,
            "backward_seconds": measured.backward_seconds,
        },
    }


def profile_table(measured: "Profile") -> Table:
    """Where the time goes and when the memory is full."""
    table = tables.plain_table("", "forward", "", "backward", "", "kept", "peak", "peak bwd")
    whole = tables.add(measured.parts.values())
    for group, piece, one in [*tables.rows(measured.parts), ("total", "", whole)]:
        table.add_row(
            f"  {piece}" if piece else group,
            milliseconds(one.forward_seconds),
            percent(one.forward_seconds, whole.forward_seconds),
            milliseconds(one.backward_seconds),
            percent(one.backward_seconds, whole.backward_seconds),
            amount(one.forward_kept_bytes, "B"),
            amount(one.forward_peak_bytes, "B"),
            amount(one.backward_peak_bytes, "B"),
            style="dim" if piece else "bold" if group == "total" else "",
        )
    return table
