"""Models whose ways are known: those of `transformers`, by class alone, and PyTorch's own Transformer."""

from typing import Any

from torch import nn

from clearhead.doctor.describe import Description, Encoder
from clearhead.doctor.infer.load import Loaded
from clearhead.doctor.infer.raised import told
from clearhead.doctor.ready import from_torch, from_transformers
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError


def spec_of(found: Any, name: str, loaded: Loaded) -> tuple[Description, str, list[str]] | None:
    """The description, its code and what it assumes; None if the ways of this model are not known."""
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        return None
    home = found.__module__
    if found.__name__ == "Transformer" and home.startswith("torch.nn"):
        said = ["embeddings before it and a head behind it are the doctor's"]
        return from_torch(found), code(loaded, name, f"doctor.from_torch({name})"), said
    configuration: Any = getattr(found, "config_class", None)
    if not home.startswith("transformers.") or configuration is None:
        return None
    try:
        spec = from_transformers(found, configuration())
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{name} could not be described: {told(error)}") from error
    if isinstance(spec, Encoder) and looks_back(spec):
        raise InputError(
            f"{name} is causal and gives states, not logits: examine the class with its language model head"
        )
    said = [f"{configuration.__name__}() in small sizes", f"{type(spec).__name__}, by the name of the class"]
    return spec, code(loaded, name, f"doctor.from_transformers({name}, {name}.config_class())"), said


def looks_back(spec: Description) -> bool:
    """Is this encoder causal? Then it is none."""
    subject = Subject(spec)
    tokens = subject.tokens(2, 6)
    changed = tokens.clone()
    changed[:, -1] = subject.other(tokens)[:, -1]
    view, model = subject.views[0], subject.model()
    before, after = (subject.quiet(view, model, given) for given in (tokens, changed))
    return bool((before[:, :-1] == after[:, :-1]).all())


def code(loaded: Loaded, name: str, expression: str) -> str:
    lines = [
        f'"""{name}, described for `clearhead doctor`."""',
        f"from {loaded.module.__name__} import {name.split('.')[0]}",
        "from clearhead import doctor",
        f"spec = {expression}",
    ]
    return "\n\n".join(lines) + "\n"
