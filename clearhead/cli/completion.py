"""What the shell offers when TAB is pressed: recipes, presets, runs. Nothing here may import torch.

Typer keeps what begins with the incomplete word; files must be looked for by it.
"""

from glob import escape, glob
from pathlib import Path

RECIPES = Path(__file__).parent.parent / "recipes"
PRESETS = ("base", "big", "tiny", "gpt2", "bert-base", "llama")  # as in clearhead.model, which needs torch


def recipes(incomplete: str) -> list[str]:
    """Packaged recipes, and TOML files where one stands."""
    return sorted(path.stem for path in RECIPES.glob("*.toml")) + sorted(glob(f"{escape(incomplete)}*.toml"))


def runs(incomplete: str) -> list[str]:
    """Folders of runs: those in runs/, and wherever the word leads to."""
    places = {*glob(f"{escape(incomplete)}*/config.toml"), *glob("runs/*/config.toml")}
    return sorted(str(Path(place).parent) for place in places)


def presets_and_runs(incomplete: str) -> list[str]:
    return [*PRESETS, *runs(incomplete)]
