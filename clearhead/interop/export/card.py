"""The README.md beside exported weights: what the model is, what it was trained on and how well it does, and its use.

All of it is read off the run. Of files it was trained on only the names are told, not where they lay.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import tomli_w

from clearhead import __version__
from clearhead.errors import visible
from clearhead.model import count_parameters
from clearhead.run import Run, read_state

KINDS = {
    "encoder-decoder": "An encoder-decoder Transformer (it reads a text and writes another)",
    "decoder": "A decoder-only Transformer (it continues a text)",
    "encoder": "An encoder-only Transformer (it reads a text)",
}


def usage(name: str, numbers: Mapping[str, Any]) -> str:
    """How an export is used, from the folder `usage`, with «…» filled in."""
    text = (files(__package__) / "usage" / f"{name}.md").read_text(encoding="utf-8")
    for key, value in numbers.items():
        text = text.replace(f"«{key}»", str(value))
    return text


def card(run: Run, checkpoint: str, program: str, usage: str) -> str:
    """Markdown; `usage` says how it is used in `program`, with DIR for its folder."""
    config, folder = run.model_config, run.checkpoint(checkpoint)
    state = read_state(folder)
    sizes = f"{count_parameters(config):,} parameters"
    parts = [
        f"# {visible(run.path.resolve().name)}\n",
        f"{KINDS[config.kind]} with {sizes}, exported by Clearhead {__version__} for {program}.\n",
        f"## Use\n\n{usage.strip()}\n",
        "## Training\n",
        *(f"- {line}" for line in history(run, folder.name, state)),
        "",
        "The same again: `clearhead train model.toml`, where `model.toml` holds\n",
        f"```toml\n{tomli_w.dumps(nameable(run.settings)).strip()}\n```\n",
    ]
    return "\n".join(parts)


def history(run: Run, checkpoint: str, state: dict[str, Any]) -> list[str]:
    """Data, steps and scores, as far as the run knows them."""
    data = nameable(run.settings.get("data", {}))
    given = [data[key] for key in ("task", "text", "source", "target") if key in data]
    lines = [f"Data: {', '.join(map(str, given)) or 'not known'}."]
    lines.append(f"Weights: {checkpoint}, after {state['step']:,} steps.")
    if scores := state.get("validation"):
        lines.append("Validation: " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()) + ".")
    versions = ", ".join(f"{name} {version}" for name, version in state.get("versions", {}).items())
    return [visible(line) for line in [*lines, *([f"Trained with {versions}."] if versions else [])]]


def nameable(settings: Any) -> Any:
    """The same settings with paths cut to the names of files."""
    if isinstance(settings, dict):
        return {key: nameable(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [nameable(value) for value in settings]
    return Path(settings).name if isinstance(settings, str) and Path(settings).is_absolute() else settings
