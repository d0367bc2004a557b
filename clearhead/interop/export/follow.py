"""Which of a run's settings a format can follow. What it cannot is refused by name, settings yet unknown included."""

from collections.abc import Collection, Mapping
from typing import Any

from clearhead.errors import InputError
from clearhead.model import ModelConfig
from clearhead.settings import to_dict

ANY = None
Followed = Mapping[str, Collection[Any] | None]  # setting -> the values that are followed, or ANY

# sizes are sizes everywhere; dropout, initial values and kernels play no part in using a model
EVERYWHERE: Followed = dict.fromkeys(
    ("vocab_size", "d_model", "heads", "d_ff", "encoder_layers", "decoder_layers", "init", "kernels")
)


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"norm": {"kind": "rms"}} as {"norm.kind": "rms"}."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return result


def refuse_beyond(config: ModelConfig, program: str, followed: Followed) -> None:
    """Refuse a model with a setting that has no home in `program`."""
    usual = flat(to_dict(ModelConfig(vocab_size=1)))
    followed = {**EVERYWHERE, **followed}
    for key, value in flat(to_dict(config)).items():
        if key.startswith("dropout."):
            continue
        if key in followed:
            values = followed[key]
            if values is not ANY and value not in values:
                known = ", ".join(map(repr, values))
                raise InputError(f"{program} cannot follow model.{key} = {value!r}; it can {known}")
        elif value != usual.get(key):
            raise InputError(f"{program} cannot follow model.{key} = {value!r}: it has no such setting")
