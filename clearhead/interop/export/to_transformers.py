"""A folder that `from_pretrained` of Hugging Face's `transformers` loads, with the class of theirs that fits the run.

Which one that is follows from the families' own tables (clearhead/interop/families): the first that can do all that the
run does, laid out anew where only the order of dimensions differs. Where none can, the nearest is named, and what it
lacks.
"""

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.interop import family
from clearhead.interop.export.card import card, usage
from clearhead.interop.export.marks import end_of_text, forbidden_marks, longest, spare_rows
from clearhead.interop.export.tokenizer_json import token_names, tokenizer_files
from clearhead.interop.families import FAMILIES
from clearhead.interop.family import Family
from clearhead.interop.layout import laid_out
from clearhead.model import ModelConfig
from clearhead.model.positions import sinusoids
from clearhead.run import Run
from clearhead.skeleton import skeleton
from clearhead.tokenizer.base import Tokenizer

FITTING = [one for one in FAMILIES.values() if one.model_type != "mingpt"]  # which is not one of theirs
TASKS = {
    "MarianMTModel": "translation",
    "PegasusForConditionalGeneration": "text2text-generation",
    "BertForMaskedLM": "fill-mask",
    "BertForTokenClassification": "token-classification",
    "BertForSequenceClassification": "text-classification",
    "BertModel": "feature-extraction",
}


def write(run: Run, checkpoint: str, folder: Path) -> str:
    """Weights, both configurations, the tokenizer and a model card; returns which class loads them."""
    from safetensors.torch import save_file

    loaded = load(run.path, checkpoint, "cpu")
    config = loaded.model.config
    texts = tokenizer_files(loaded)
    weights = {name: tensor.detach().float() for name, tensor in loaded.model.named_parameters()}
    settings, tensors = translated(config, weights)
    architecture = settings["architectures"][0]
    if config.positions.kind != "learned":
        rows = loaded.window() if config.kind == "decoder" else longest(loaded)
        settings["max_position_embeddings"] = rows
        tensors |= stored_too(config, tensors, rows)
    marks = token_ids(loaded)
    put(folder / "config.json", {**settings, **marks, "dtype": "float32"})
    if config.kind != "encoder":
        most = loaded.settings.max_extra + run.settings.get("data", {}).get("max_length", 256)
        put(folder / "generation_config.json", {**marks, **generation(loaded, most)})
    for side, tokenizer in (("", loaded.source_tokenizer), ("target_", loaded.tokenizer)):
        if f"{side}tokenizer.json" in texts:  # the second in a folder of its own: their files have fixed names
            place = folder / "target" if side else folder
            place.mkdir(exist_ok=True)
            put(place / "tokenizer_config.json", tokenizer_config(tokenizer, config, settings))
            (place / "tokenizer.json").write_text(texts[f"{side}tokenizer.json"], encoding="utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    task = TASKS.get(architecture, "text-generation")
    front = f"---\nlibrary_name: transformers\npipeline_tag: {task}\ntags: [clearhead]\n---\n\n"
    second = "" if config.source_vocab_size is None else "/target"
    said = usage(f"transformers_{config.kind}", {"class": architecture, "target": second})
    (folder / "README.md").write_text(front + card(run, checkpoint, "transformers", said), encoding="utf-8")
    return f"transformers.{architecture}.from_pretrained('DIR')"


def put(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# ---- the class that fits ---------------------------------------------------------------------------------------------


def translated(config: ModelConfig, weights: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Their configuration and tensors by the first family that fits."""
    for one in FITTING:
        if lacking(one, config) == {}:
            return family.write(one, config, weights)
    near = {one: found for one in FITTING if (found := lacking(one, config)) is not None and "kind" not in found}
    nearest = min(near, key=lambda one: len(near[one]))
    said = "; ".join(
        f"model.{key} = {ours!r}, where it has {theirs!r}" for key, (ours, theirs) in near[nearest].items()
    )
    name = nearest.architecture(config)
    raise InputError(f"no class of transformers fits this run. The nearest, {name}, cannot follow {said}")


def lacking(one: Family, config: ModelConfig) -> dict[str, tuple[Any, Any]] | None:
    """What a family cannot follow, however the model is laid out; None if it has not even settings for it."""
    try:
        found = family.unlike(one, config)
        if not found or "kind" in found:
            return found
        return family.unlike(one, laid_out(config, dict(skeleton(config).named_parameters()), set(found))[0])
    except InputError:
        return None


def stored_too(config: ModelConfig, tensors: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """What Marian and Pegasus have in their files as well: the sinusoids that they compute, and the one embedding once
    more for each side where nothing is tied."""
    if config.kind != "encoder-decoder":
        return {}
    sides = ("model.encoder.", "model.decoder.")
    table = sinusoids(rows, config.d_model, config.positions.base, "split").float()
    extra = {f"{side}embed_positions.weight": table.clone() for side in sides}
    if not config.head.tied and "model.shared.weight" in tensors:
        extra |= {f"{side}embed_tokens.weight": tensors["model.shared.weight"].clone() for side in sides}
    return extra


# ---- what they want to know beside the model -------------------------------------------------------------------------


def token_ids(loaded: LoadedModel) -> dict[str, Any]:
    """The marks by number. Their classes have ids of their own for those that are not given: so none is left out."""
    tokenizer, kind = loaded.tokenizer, loaded.model.config.kind
    end = end_of_text(loaded) if kind != "encoder" else tokenizer.eos_id
    pad = tokenizer.pad_id if tokenizer.pad_id is not None else tokenizer.eos_id
    ids: dict[str, Any] = {"bos_token_id": tokenizer.bos_id, "eos_token_id": end, "pad_token_id": pad}
    if kind == "encoder-decoder":
        ids |= {"decoder_start_token_id": tokenizer.bos_id, "forced_eos_token_id": None}
    return ids


def generation(loaded: LoadedModel, most: int) -> dict[str, Any]:
    """How the run writes: at most so many tokens of a translation, since they cannot be counted from its source; and
    greedily where it searched with beams, whose scores `transformers` counts otherwise."""
    settings, translating = loaded.settings, loaded.model.config.kind == "encoder-decoder"
    result: dict[str, Any] = {"num_beams": 1, "do_sample": False}
    result["max_new_tokens"] = most if translating else settings.max_tokens
    if not translating and settings.temperature > 0:
        result |= {"do_sample": True, "temperature": settings.temperature, "top_k": settings.top_k}
        result |= {"top_p": settings.top_p, "min_p": settings.min_p}
    if never := sorted([*forbidden_marks(loaded), *spare_rows(loaded)]):
        result["suppress_tokens"] = never
    if settings.min_length:
        result["min_new_tokens"] = settings.min_length
    if settings.no_repeat_ngram:
        result["no_repeat_ngram_size"] = settings.no_repeat_ngram
    if settings.repetition_penalty != 1:
        result["repetition_penalty"] = settings.repetition_penalty
    return result


def tokenizer_config(tokenizer: Tokenizer, config: ModelConfig, settings: dict[str, Any]) -> dict[str, Any]:
    """Special tokens in a text are text, as here; but an encoder-only model is given its <mask> in the text."""
    names = token_names(tokenizer, tokenizer.size)
    known = {
        "bos_token": tokenizer.bos_id,
        "eos_token": tokenizer.eos_id,
        "unk_token": tokenizer.unk_id,
        "pad_token": tokenizer.pad_id if tokenizer.pad_id is not None else tokenizer.eos_id,
        "mask_token": tokenizer.mask_id,
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{key: names[number] for key, number in known.items() if number is not None},
        "split_special_tokens": config.kind != "encoder",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": settings.get("max_position_embeddings", settings.get("n_positions")),
    }
