"""The runs that are served, by the names of their folders: what each can do, and the desk at which its texts wait."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from clearhead.decoding.classify import Classifier
from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.run import Run
from clearhead.serve.completing import CompletingDesk
from clearhead.serve.together import TogetherDesk
from clearhead.serve.waiting import Desk

VERBS = {"encoder-decoder": ["translate"], "decoder": ["completions"], "encoder": ["embeddings"]}


@dataclass(frozen=True)
class Served:
    """One run."""

    name: str
    checkpoint: str
    created: int
    loaded: LoadedModel
    desk: Desk

    @property
    def can(self) -> list[str]:
        return VERBS[self.loaded.model.config.kind] + (["predict"] if isinstance(self.loaded, Classifier) else [])

    def described(self) -> dict[str, Any]:
        shared = {"id": self.name, "object": "model", "created": self.created, "owned_by": "clearhead"}
        return {**shared, "can": self.can, "checkpoint": self.checkpoint}


def open_runs(
    runs: list[str], checkpoint: str = "best", device: str = "auto", threads: int | None = None, batch: int = 32
) -> dict[str, Served]:
    """Load every run; two of one name could not be told apart."""
    served: dict[str, Served] = {}
    for run in runs:
        name = Path(os.path.abspath(run)).name
        if name in served:
            raise InputError(f"two runs are called {name!r}: a run is served by the name of its folder")
        chosen = Run(run).checkpoint(checkpoint)
        loaded = load(run, chosen.name, device, threads)
        desk = desk_for(loaded, batch)
        served[name] = Served(name, chosen.name, int(chosen.stat().st_mtime), loaded, desk)
    return served


def desk_for(loaded: LoadedModel, batch: int) -> Desk:
    if loaded.model.config.kind == "decoder":
        return CompletingDesk(loaded, batch)

    def translate(sources: list[Any], how: Any) -> list[Any]:
        return loaded.translate_ids(sources, **dict(how))

    def read(texts: list[Any], how: Any) -> list[Any]:
        if how == "predict":
            return list(loaded.predict(texts))
        with torch.inference_mode():  # as `clearhead encode --mean --normalise`
            means = [states.mean(0) for states in loaded.encode(texts)]
            return [(mean / mean.norm().clamp(min=1e-12)).tolist() for mean in means]

    return TogetherDesk(translate if loaded.model.config.kind == "encoder-decoder" else read, batch)
