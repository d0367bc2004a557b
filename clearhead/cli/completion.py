"""What the shell offers when TAB is pressed: recipes, presets, runs. Nothing here may import torch."""

from glob import escape, glob
from pathlib import Path

RECIPES = Path(__file__).parent.parent / "recipes"
PRESETS = ("base", "big", "tiny", "gpt2", "bert-base", "llama")  # as in model/config.py, which needs torch


def recipes(incomplete: str) -> list[str]:
    """Packaged recipes, and TOML files where one stands."""
    packaged = [path.stem for path in RECIPES.glob("*.toml") if path.stem.startswith(incomplete)]
    return sorted(packaged) + sorted(glob(f"{escape(incomplete)}*.toml"))


def runs(incomplete: str) -> list[str]:
    """Folders of runs, wherever the word leads to; before it leads anywhere also those in runs/."""
    places = {*glob(f"{escape(incomplete)}*/config.toml"), *glob("runs/*/config.toml")}
    return sorted(str(Path(place).parent) for place in places if place.startswith(incomplete))


def presets_and_runs(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)] + runs(incomplete)
