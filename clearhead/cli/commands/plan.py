"""`clearhead plan`: memory, time and what is sent, before they are spent."""

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from clearhead.cli import tables
from clearhead.cli.commands.shapes import AsJson, Changes, Length, PresetOrRun, SourceLength, Vocabulary
from clearhead.cli.preset_or_run import chosen_model
from clearhead.cli.tables import amount
from clearhead.errors import InputError

if TYPE_CHECKING:
    from clearhead.cost.devices import Device
    from clearhead.cost.plan import Plan

UNITS = {"": 1, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


Tokens = Annotated[str, typer.Option(metavar="N", help="Tokens to train on, of the target: 300B, 4.5M, 1e9.")]
Devices = Annotated[str, typer.Option(metavar="COUNTxDEVICE", help="For example 8xH100, or A100 for one.")]
Sequences = Annotated[
    int | None, typer.Option("--batch", "-b", min=1, metavar="B", help="Sequences on each device; else all that fit.")
]
Float32 = Annotated[bool, typer.Option("--float32", help="In 32 bits; otherwise in 16, weights in 32.")]
Share = Annotated[float, typer.Option(min=0.01, max=1, metavar="U", help="Share of the peak that training reaches.")]


def plan(
    model: PresetOrRun,
    tokens: Tokens,
    devices: Devices,
    length: Length = 512,
    source_length: SourceLength = None,
    vocabulary: Vocabulary = None,
    batch: Sequences = None,
    float32: Float32 = False,
    utilisation: Share = 0.35,
    changes: Changes = None,
    as_json: AsJson = False,
) -> None:
    """Memory, time and bytes sent of a training, under DDP and FSDP, before it is begun.

    \b
    Examples:
      clearhead plan base --tokens 2.5B --devices 8xP100 --float32 --length 64
      clearhead plan gpt2 --tokens 300B --devices 8xA100-40 --length 1024
      clearhead plan llama --tokens 20B --devices 1xRTX4090 --set d_model=2048
    """
    from clearhead.cost.devices import DEVICES
    from clearhead.cost.plan import advice, describe
    from clearhead.cost.plan import plan as planned

    number, count, device = amount_of(tokens), *machine_of(devices, DEVICES)
    with Console(stderr=True).status("running the model without its memory"):
        config = chosen_model(model, changes or [], vocabulary)
        described = describe(config, length, source_length)
    ways = ("ddp", "fsdp") if count > 1 else ("ddp",)
    plans = [planned(described, number, device, count, way, not float32, batch, utilisation) for way in ways]  # type: ignore[arg-type]
    said = advice(described, device, count, plans, not float32)
    if as_json:
        shown = [asdict(one) | {"total_bytes": one.memory.total, "seconds": one.seconds} for one in plans]
        print(json.dumps({"model": asdict(described), "device": asdict(device), "plans": shown, "advice": said}))
        return
    console = tables.screen()
    bits = "32 bits" if float32 else "16 bits, weights and sums in 32"
    console.print(
        f"[bold]{model}[/] on {count} × {device.name} ({device.memory / 1e9:.0f} GB), {amount(number)}tokens in "
        f"sequences of {length}, {bits}\n"
    )
    console.print(plan_table(plans, device, count))
    console.print(
        f"\n[dim]{amount(described.flops / described.length)}FLOPs a token, at {utilisation:.0%} of the peak, which is "
        f"assumed (--utilisation). Device: {device.source}.[/]"
    )
    for line in said:
        console.print(line)


def plan_table(plans: "list[Plan]", device: "Device", count: int) -> Table:
    """One column for each way to train."""
    names = {"ddp": "DDP" if count > 1 else "alone", "fsdp": "FSDP"}
    table = tables.plain_table("on each device", *(names[one.parallel] for one in plans))
    for name in ("weights", "gradients", "optimizer", "buffers", "activations"):
        table.add_row(f"  {name}", *(amount(getattr(one.memory, name), "B") for one in plans))
    fits = ["" if one.batch and one.memory.total <= device.memory else " does not fit" for one in plans]
    table.add_row(
        "memory", *(amount(one.memory.total, "B") + said for one, said in zip(plans, fits, strict=True)), style="bold"
    )
    table.add_row("sequences at once", *(f"{one.batch:,}" for one in plans))
    table.add_row("sent in a step", *(amount(one.bytes_sent, "B") for one in plans))
    table.add_row("  takes", *(duration(one.send_seconds) for one in plans))
    table.add_row("computing a step", *(duration(one.compute_seconds) for one in plans))
    table.add_row("steps", *(f"{one.steps:,.0f}" if one.batch else "–" for one in plans))
    table.add_row("time", *(duration(one.seconds) if one.batch else "–" for one in plans), style="bold")
    return table


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for unit, size in (("days", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if seconds >= 1.5 * size or unit == "s":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


def amount_of(text: str) -> float:
    """`4.5M` as a number."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d+)?)([kMBT]?)", text)
    number = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 1 <= number <= 1e18:
        raise InputError(f"--tokens is {text!r}: a number from 1 to 1e18 is wanted, such as 300B, 4.5M or 1e9")
    return number


def machine_of(text: str, known: "dict[str, Device]") -> "tuple[int, Device]":
    """`8xH100` as a count and a device."""
    found = re.fullmatch(r"(?:(\d{1,6})x)?(.+)", text)
    names = {name.lower(): device for name, device in known.items()}
    if not found or found[2].lower() not in names or found[1] == "0":
        raise InputError(f"--devices is {text!r}: wanted is COUNTxDEVICE, such as 8xH100; known: {', '.join(known)}")
    return int(found[1] or 1), names[found[2].lower()]
