"""The model that a command is about: a preset's name or a run's folder, with changes from the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import InputError
from clearhead.settings import merge, parse_assignment, to_dict

if TYPE_CHECKING:
    from clearhead.model import ModelConfig


def chosen_model(name: str, changes: list[str], vocabulary: int | None = None) -> "ModelConfig":
    """The configuration called `name`, with `key=value` changes such as `positions.kind=rope`."""
    from clearhead.model.presets import PRESETS, configure

    settings: dict[str, Any] = {}
    for change in changes:
        settings = merge(settings, parse_assignment(change.removeprefix("model.")))  # as a recipe would call it, too
    if vocabulary is not None:
        settings = merge(settings, {"vocab_size": vocabulary})
    if name in PRESETS:
        return configure(name, **settings)
    if Path(name).is_dir():
        from clearhead.run import Run

        return configure(**merge(to_dict(Run(name).model_config), settings))
    raise InputError(f"{name!r} is neither a preset ({', '.join(PRESETS)}) nor the folder of a run")
