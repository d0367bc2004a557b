"""Small models with strong opinions: random weights alone give nearly even distributions, which prove little."""

from pathlib import Path
from typing import Any

import tomli_w
import torch

from clearhead.model import EncoderOnly, Transformer, build, configure
from clearhead.run import write_checkpoint
from clearhead.settings import to_dict
from clearhead.tokenizer import SPECIAL, BytePair, Tokenizer, train


def opinionated(
    seed: int = 0, preset: str = "tiny", sharpness: float = 3.0, ending: float = 2.0, **changes: Any
) -> Any:  # which of the three kinds, the preset and the changes say
    """A tiny model in float64 whose matrices are scaled up."""
    sizes = {
        "head": {"bias": True},
        "vocab_size": 20,
        "d_model": 16,
        "heads": 2,
        "d_ff": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
    }
    config = configure(preset, **{**sizes, **changes})
    torch.manual_seed(seed)
    model = build(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(sharpness)
            else:
                parameter.add_(0.2 * torch.randn_like(parameter))
        if not isinstance(model, EncoderOnly) and model.output.bias is not None:
            model.output.bias[2] += ending  # the end token's
    return model


def byte_tokenizer() -> BytePair:
    """A few merges on top of all bytes: reads and writes anything."""
    texts = ["the cat sat on the mat and the dog sat on the cat " * 20]
    return train(texts, 275, special=SPECIAL, workers=1)


def write_run(path: Path, model: Transformer, tokenizer: Tokenizer, **tables: dict[str, Any]) -> Path:
    """A run as training leaves it, with these weights."""
    path.mkdir(parents=True, exist_ok=True)
    settings = {"model": to_dict(model.config), **tables}
    (path / "config.toml").write_text(tomli_w.dumps(settings))
    tokenizer.save(path / "tokenizer.json")
    write_checkpoint(path / "checkpoints" / "step_00000001", {"model.safetensors": model.state_dict()}, {"step": 1})
    (path / "latest").write_text("step_00000001\n")
    return path


def small_run(path: Path, kind: str, seed: int = 0, **tables: dict[str, Any]) -> Path:
    """A run of random weights with a byte-level tokenizer."""
    tokenizer = byte_tokenizer()
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "encoder-decoder": ("tiny", {}),
        "decoder": ("llama", {"kv_heads": 1, "head": {"bias": True}}),
        "encoder": ("tiny", {"kind": "encoder", "head": {"kind": "tokens", "classes": 5, "bias": False}}),
    }
    preset, changes = kinds[kind]
    model = opinionated(seed, preset, 1.5, vocab_size=tokenizer.size, **changes).float()
    return write_run(path, model, tokenizer, **tables)
