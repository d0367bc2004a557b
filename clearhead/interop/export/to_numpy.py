"""A trained model as one script to read: weights, vocabulary, and some hundred lines that need nothing but NumPy.

`numpy_script.txt` is the script with all its variants. A line that ends in `#? words`, or the lines from `#? words` to
`#? end`, stay if what they say of the run is true; so what is left has no choices in it and reads from top to bottom.
"""

import json
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from clearhead import __version__
from clearhead.decoding.load import LoadedModel, load
from clearhead.decoding_settings import DecodingSettings
from clearhead.errors import InputError, require
from clearhead.interop.export.follow import ANY, Followed, refuse_beyond
from clearhead.interop.export.marks import end_of_text, forbidden_marks, runs_of, spare_rows
from clearhead.model import ModelConfig
from clearhead.model.positions import alibi_slopes, frequencies, stretched
from clearhead.run import Run
from clearhead.tokenizer.base import Tokenizer
from clearhead.tokenizer.bytepair import BytePair
from clearhead.tokenizer.characters_and_integers import Characters, Integers
from clearhead.tokenizer.split import python_pattern

FOLLOWED: Followed = {
    "kind": ("encoder-decoder", "decoder", "encoder"),
    "kv_heads": ANY,
    "head_dim": ANY,
    "qkv_bias": ANY,
    "qk_norm": ANY,
    "activation": ("relu", "gelu", "gelu_tanh", "silu", "swiglu"),
    "bias": ANY,
    "window": ANY,
    "embedding.scaled": ANY,
    "embedding.norm": ANY,
    "embedding.segments": ANY,
    "positions.kind": ("sinusoidal", "learned", "rope", "alibi", "none"),
    "positions.layout": ("interleaved", "split"),
    "positions.base": ANY,
    "positions.max_length": ANY,
    "positions.start": ANY,
    **dict.fromkeys(f"positions.scaling.{key}" for key in ("kind", "factor", "low", "high", "context")),
    "norm.kind": ("layer", "rms"),
    "norm.placement": ("pre", "post"),
    "norm.epsilon": ANY,
    "norm.final": ANY,
    "head.kind": ("vocabulary", "masked", "tokens", "pooled", "none"),
    "head.tied": ANY,
    "head.bias": ANY,
    "head.classes": ANY,
}
LINEAR = re.compile(r"(.*(?:attention|feed_forward)\.\w+|output\.(?:transform|classify))\.weight")
TITLES = {
    "encoder-decoder": "A Transformer that reads a text and writes another",
    "decoder": "A Transformer that continues a text",
    "encoder": "A Transformer that reads a text and says something about it",
}


def write(run: Run, checkpoint: str, folder: Path) -> str:
    """`model.py`, `weights.npz` and `tokens.json`; returns how they are used."""
    import numpy

    refuse_beyond(run.model_config, "the NumPy script", FOLLOWED)
    loaded = load(run.path, checkpoint, "cpu")
    example = "3 March 2029" if run.settings.get("data", {}).get("task") == "dates" else "some text"
    about = {"title": TITLES[run.model_config.kind], "origin": origin(run, checkpoint), "example": example}
    script = specialise(*choices(loaded), about)
    weights = {name: tensor.float().numpy() for name, tensor in loaded.model.state_dict().items()}
    if (scaling := run.model_config.positions.scaling) is not None:
        usual = frequencies(run.model_config.d_head, run.model_config.positions.base)
        weights["frequencies"] = stretched(usual, scaling).numpy()
    tokens = vocabulary(loaded.tokenizer)
    (folder / "model.py").write_text(script, encoding="utf-8")
    numpy.savez(folder / "weights.npz", **weights)
    (folder / "tokens.json").write_text(json.dumps(tokens, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    return f'python DIR/model.py "{example}"'


def origin(run: Run, checkpoint: str) -> str:
    config = run.model_config
    layers = " + ".join(str(count) for count in (config.encoder_layers, config.decoder_layers) if count)
    name = re.sub(r"[^\w .-]", "_", run.path.resolve().name)  # it goes into a program: no quote may end its text
    said = f"Exported by Clearhead {__version__} from the run {name[:40]}"
    return f"{said}, {run.checkpoint(checkpoint).name}: {layers} layers."


# ---- what is true of a run ------------------------------------------------------------------------------------------


def choices(loaded: LoadedModel) -> tuple[set[str], dict[str, Any]]:
    """The words that hold for a model, by which lines of the script stay, and the numbers that are filled in."""
    config, tokenizer, settings = loaded.model.config, loaded.tokenizer, loaded.settings
    usual = DecodingSettings()
    for key in ("min_length", "no_repeat_ngram", "repetition_penalty"):
        found = getattr(settings, key)
        if config.kind != "encoder" and found != getattr(usual, key):
            raise InputError(f"the NumPy script cannot follow decoding.{key} = {found}: it writes the likeliest token")
    if config.kind == "encoder" and config.head.kind == "masked":
        require(
            config.activation != "swiglu",
            "the NumPy script cannot follow model.activation = 'swiglu' with model.head.kind = 'masked'",
        )
    words = of_the_layers(config, set(loaded.model.state_dict()))
    numbers = {
        "D": config.d_model,
        "H": config.heads,
        "G": config.key_value_heads,
        "G_": "G" if config.key_value_heads != config.heads else "H",
        "EPSILON": config.norm.epsilon,
        "BASE": config.positions.base,
        "SLOPES": [float(slope) for slope in alibi_slopes(config.heads)],
        "WINDOW": config.window,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "room": config.positions.max_length,
        "first": config.positions.start,
        "vocabulary": "embedding.weight" if config.head.tied else "output.weight",
        "cache": "" if config.kind == "encoder" else ", cache",
    }
    for more_words, more_numbers in (of_the_text(loaded), of_the_tokenizer(tokenizer)):
        words |= more_words
        numbers |= more_numbers
    return words, numbers


def of_the_layers(config: ModelConfig, names: set[str]) -> set[str]:
    positions, head, norm = config.positions, config.head, config.norm
    maps = [found[1] for name in names if (found := LINEAR.fullmatch(name))]
    biased = sum(f"{name}.bias" in names for name in maps)
    true = {
        "cross": config.kind == "encoder-decoder",
        "onlywrites": config.kind == "decoder",
        "onlyreads": config.kind == "encoder",
        "reads": config.kind != "decoder",
        "writes": config.kind != "encoder",
        "grouped": config.key_value_heads != config.heads,
        "window": config.window is not None,
        "distances": config.window is not None or positions.kind == "alibi",
        "waves": positions.kind in ("sinusoidal", "rope"),
        "later": positions.start > 0,
        "stretched": positions.scaling is not None,
        "qknorm": config.qk_norm,
        "placed": positions.kind in ("sinusoidal", "learned"),
        "scaled": config.embedding.scaled,
        "embednorm": config.embedding.norm,
        "segments": config.embedding.segments > 0,
        "bias": biased == len(maps),
        "nobias": biased == 0,
        "somebias": 0 < biased < len(maps),
        "normbias": config.bias,
        "layernorm": norm.kind == "layer",
        "rmsnorm": norm.kind == "rms",
        "final": bool(norm.final),
        "headbias": head.bias,
        "classes": head.classes > 0,
        "bare": head.kind == "none",
        "silu": config.activation in ("silu", "swiglu"),
    }
    kinds = {positions.kind, positions.layout, norm.placement, head.kind, config.activation}
    return {word for word, holds in true.items() if holds} | (kinds - {"none"})


def of_the_text(loaded: LoadedModel) -> tuple[set[str], dict[str, Any]]:
    """How a text begins and ends, and how long it may be."""
    config, tokenizer, settings = loaded.model.config, loaded.tokenizer, loaded.settings
    most = min(settings.max_source, config.positions.max_length or settings.max_source)
    if config.kind == "encoder":
        mask, most = tokenizer.mask_id, config.positions.max_length or settings.max_source
        require(not any(tokenizer.around or ()), "the NumPy script cannot follow a tokenizer with marks around a text")
        return ({"gaps"} if mask is not None else set()), {"MASK": mask, "most": most, "most_and_one": most + 1}
    end, never = end_of_text(loaded), sorted([*forbidden_marks(loaded), *spare_rows(loaded)])
    words = {word for word, holds in {"ends": end is not None, "never": bool(never)}.items() if holds}
    numbers = {"END": end, "NEVER": runs_of(never), "most": most - 1}
    if config.kind == "encoder-decoder":
        require(tokenizer.bos_id is not None, "the tokenizer has no <s>, with which every translation begins")
        return words, numbers | {"START": tokenizer.bos_id, "more": settings.max_extra}
    begins = [loaded.beginning] if tokenizer.around is None else list(tokenizer.around[0])
    if begins not in ([], [None]):
        words.add("begins")
    elif loaded.beginning is not None:  # of others' models: only where there is nothing else to read
        words.add("alone")
    return words, numbers | {"BEGINNING": begins, "ALONE": loaded.beginning, "more": settings.max_tokens}


# ---- the vocabulary --------------------------------------------------------------------------------------------------


def of_the_tokenizer(tokenizer: Tokenizer) -> tuple[set[str], dict[str, Any]]:
    if isinstance(tokenizer, BytePair):
        return {"bytepair"} | ({"whole"} if tokenizer.whole_words else set()), {}
    unknown = tokenizer.unk_id
    if isinstance(tokenizer, Characters):
        return {"characters"} | ({"unknown"} if unknown is not None else set()), {"UNKNOWN": unknown}
    return {"integers"}, {}


def vocabulary(tokenizer: Tokenizer) -> Any:
    """What goes into tokens.json; bytes are written as the characters of their numbers (latin-1)."""
    if isinstance(tokenizer, Characters):
        clash = [name for name in tokenizer.special if len(name) == 1 and name not in tokenizer.characters]
        require(not clash, f"the NumPy script cannot follow the special token {clash}: it is a single character")
        return [*tokenizer.special, *tokenizer.characters]
    if isinstance(tokenizer, Integers):
        return list(tokenizer.special)
    if not isinstance(tokenizer, BytePair):
        raise InputError(f"the NumPy script cannot follow a tokenizer of the kind {type(tokenizer).__name__}")
    return {
        "pattern": python_pattern(tokenizer.pattern),
        "ids": {token.decode("latin-1"): number for token, number in tokenizer.vocabulary.items()},
        "special": {name.encode().decode("latin-1"): number for name, number in tokenizer.special.items()},
        "merges": [[part.decode("latin-1") for part in pair] for pair in tokenizer.merges],
    }


# ---- the script ------------------------------------------------------------------------------------------------------


def specialise(words: set[str], numbers: dict[str, Any], about: dict[str, str]) -> str:
    """The script of a run: the lines whose words hold, with its numbers in them."""
    template = (files(__package__) / "numpy_script.txt").read_text(encoding="utf-8")
    kept: list[str] = []
    blocks: list[bool] = []
    for line in template.splitlines():
        code, marked, condition = line.partition("#? ")
        if not marked:
            kept += [line] if all(blocks) else []
        elif code.strip():
            kept += [code.rstrip()] if all(blocks) and holds(condition, words) else []
        elif condition.strip() == "end":
            blocks.pop()
        else:
            blocks.append(holds(condition, words))
    assert not blocks, "a block of the template is not closed"
    text = re.sub(r"\n{4,}", "\n\n\n", "\n".join(kept) + "\n")
    return Template(text).substitute({**numbers, **about})


def holds(condition: str, words: set[str]) -> bool:
    """Whether all words of a condition are true; `not` turns round the one after it."""
    wanted = True
    for word in condition.split():
        if word == "not":
            wanted = False
            continue
        if (word in words) != wanted:
            return False
        wanted = True
    return True
