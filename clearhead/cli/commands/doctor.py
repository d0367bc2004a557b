"""`clearhead doctor module:spec`: examine a described model and say what is wrong with it.

Exit status: 0 healthy, 1 at least one error was found, 2 the description could not be used.
"""

import importlib
import json
import sys
from typing import Annotated, Any

import typer

from clearhead.errors import InputError


def doctor(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The description to examine: module:name.")],
    only: Annotated[list[str] | None, typer.Option(help="Run this probe only; can be given several times.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out probes that train or use long inputs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Find silent bugs in a PyTorch Transformer: masks, shapes, positions, cache, loss, training.

    TARGET names a description, module:name, as in `mypackage.model:spec`. A description is a small object made with
    clearhead.doctor.CausalLM, Encoder or EncoderDecoder; docs/doctor.md writes one in five minutes. A function without
    arguments that returns one is fine too, and so is a class with the constructor of torch.nn.Transformer.

    \b
    Examples:
      clearhead doctor mypackage.model:spec
      clearhead doctor mypackage.model:spec --quick
      clearhead doctor mypackage.model:spec --only future --only cache
      clearhead doctor mypackage.model:spec --json | jq .findings
      clearhead doctor torch.nn:Transformer
    """
    from clearhead.doctor.examine import check

    spec = find(target)
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("examining") as status:
            report = check(spec, only, quick, progress=lambda name: status.update(f"examining: {name}"))
    else:
        report = check(spec, only, quick)
    if as_json:
        print(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    elif sys.stdout.isatty():
        from clearhead.cli.doctor_report import show

        show(report)
    else:
        print(report)
    raise typer.Exit(0 if report.healthy else 1)


def find(target: str) -> Any:
    """Import module:name; what goes wrong on the way is told, not thrown."""
    module_name, _, name = target.partition(":")
    if not name:
        raise InputError(f"{target!r} names no description; wanted module:name, as in mypackage.model:spec")
    # like `python -m`, find modules in the directory one stands in
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise InputError(f"cannot import {module_name!r}: {error}") from error
    except Exception as error:
        raise InputError(f"importing {module_name!r} raised {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"module {module_name!r} has no {name!r}")
        found = getattr(found, part)
    return described(found, target)


def described(found: Any, target: str) -> Any:
    """A description as it is; a function that makes one; or PyTorch's own Transformer, which is described here."""
    from torch import nn

    from clearhead.doctor.describe import Description
    from clearhead.doctor.ready import from_torch

    if isinstance(found, Description):
        return found
    if isinstance(found, type) and issubclass(found, nn.Module):
        if found.__name__ == "Transformer" and found.__module__.startswith("torch.nn"):
            return from_torch(found)
        raise InputError(
            f"{target} is a model class; describe it: spec = doctor.CausalLM(build={found.__name__}, "
            "forward=lambda model, tokens: model(tokens))"
        )
    if callable(found):
        made = found()
        if isinstance(made, Description):
            return made
    raise InputError(f"{target} is a {type(found).__name__}, wanted a doctor.CausalLM, Encoder or EncoderDecoder")
