"""A folder for CTranslate2 (OpenNMT's engine for fast inference): its `Translator` or its `Generator`.

Its specification names every layer, and ours are entered there one by one. Positions are given as a table, so that our
way of interleaving them is kept; that table ends, and with it the length of a text.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.decoding.load import LoadedModel, load
from clearhead.errors import InputError
from clearhead.interop.export.card import card, usage
from clearhead.interop.export.follow import ANY, Followed, refuse_beyond
from clearhead.interop.export.marks import forbidden_marks, longest, spare_rows
from clearhead.interop.export.tokenizer_json import token_names, tokenizer_files
from clearhead.model import DecoderOnly, EncoderDecoder, EncoderOnly, ModelConfig
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.positions import LearnedPositions, sinusoids
from clearhead.run import Run

BOTH: Followed = {
    "source_vocab_size": ANY,
    "kind": ("encoder-decoder", "decoder"),
    "kv_heads": ANY,
    "head_dim": ANY,
    "qkv_bias": ANY,
    "qk_norm": ANY,
    "positions.start": ANY,
    "positions.scaling.kind": ("linear",),
    **dict.fromkeys(f"positions.scaling.{key}" for key in ("factor", "low", "high", "context")),
    "activation": ("relu", "gelu", "gelu_tanh", "silu", "swiglu"),
    "bias": ANY,
    "embedding.scaled": ANY,
    "embedding.norm": ANY,
    "positions.layout": ("interleaved", "split"),
    "positions.base": ANY,
    "positions.max_length": ANY,
    "norm.kind": ("layer", "rms"),
    "norm.placement": ("pre", "post"),
    "norm.epsilon": ANY,
    "norm.final": ANY,
    "head.tied": ANY,
    "head.bias": ANY,
}
FOLLOWED: dict[str, Followed] = {
    "encoder-decoder": {**BOTH, "positions.kind": ("sinusoidal", "learned", "rope", "none")},
    "decoder": {**BOTH, "positions.kind": ("sinusoidal", "learned", "rope", "alibi", "none")},
}
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swiglu": "SWISH"}


def write(run: Run, checkpoint: str, folder: Path, quantization: str | None = None) -> str:
    """`model.bin`, `config.json`, the vocabulary, `tokenizer.json` and a README; returns how they are used."""
    check(run.model_config)
    try:
        import ctranslate2
    except ImportError:
        raise InputError("--to ctranslate2 needs CTranslate2: pip install 'clearhead[export]'") from None
    loaded = load(run.path, checkpoint, "cpu")
    model, config = loaded.model, loaded.model.config
    assert not isinstance(model, EncoderOnly)
    texts, words = tokenizer_files(loaded), token_names(loaded.tokenizer, config.vocab_size)
    source_rows = config.source_vocab_size or config.vocab_size
    spec = specification(model, words, longest(loaded), token_names(loaded.source_tokenizer, source_rows))
    name_marks(spec, loaded, words)
    put_out_of_reach(spec.decoder.projection, spare_rows(loaded))
    spec.validate()
    spec.optimize(quantization or "float32")
    spec.save(str(folder))
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    numbers = {"never": [[words[mark]] for mark in forbidden_marks(loaded)], "target": Path(list(texts)[-1]).stem}
    said = card(run, checkpoint, f"CTranslate2 {ctranslate2.__version__}", usage(f"ctranslate2_{config.kind}", numbers))
    (folder / "README.md").write_text(said, encoding="utf-8")
    return f"used as in DIR/README.md, by ctranslate2.{'Generator' if config.kind == 'decoder' else 'Translator'}"


def check(config: ModelConfig) -> None:
    """Refuse by name what CTranslate2 has no place for."""
    if config.kind not in FOLLOWED:
        raise InputError(f"CTranslate2 cannot follow model.kind = {config.kind!r}; it can {', '.join(FOLLOWED)}")
    refuse_beyond(config, "CTranslate2", FOLLOWED[config.kind])
    if config.norm.placement == "post" and config.norm.final:
        raise InputError("CTranslate2 cannot follow model.norm.final = True with model.norm.placement = 'post'")
    if config.qk_norm and (config.kind != "decoder" or config.norm.kind != "rms"):
        found = f"model.kind = {config.kind!r} and model.norm.kind = {config.norm.kind!r}"
        raise InputError(
            f"CTranslate2 cannot follow model.qk_norm = True with {found}; it can with 'decoder' and 'rms'"
        )


def name_marks(spec: Any, loaded: LoadedModel, words: list[str]) -> None:
    """Which tokens begin, end and stand for the unknown; where there is none of its own, the end stands for it."""
    tokenizer = loaded.tokenizer
    end = words[tokenizer.eos_id if tokenizer.eos_id is not None else 0]
    for name, mark in (
        ("bos_token", tokenizer.bos_id),
        ("eos_token", tokenizer.eos_id),
        ("unk_token", tokenizer.unk_id),
    ):
        setattr(spec.config, name, end if mark is None else words[mark])
    if loaded.model.config.kind == "encoder-decoder":
        spec.config.decoder_start_token = spec.config.bos_token


def put_out_of_reach(projection: Any, rows: list[int]) -> None:
    """Rows that no token has must never be written; a bias sees to that, whoever decodes."""
    if rows:
        bias = projection.bias if projection.has_bias() else array(torch.zeros(len(projection.weight)))
        projection.bias = bias.copy()
        projection.bias[rows] = -1e9


# ---- the specification ---------------------------------------------------------------------------------------------


def specification(
    model: EncoderDecoder | DecoderOnly,
    words: list[str],  # for the rows of the embedding
    positions: int,
    source_words: list[str] | None = None,  # the same for the source, where it has a vocabulary of its own
) -> Any:
    """Our model as CTranslate2 describes one."""
    from ctranslate2.specs import transformer_spec

    config = model.config
    decoder = transformer_spec.TransformerDecoderSpec(
        config.decoder_layers,
        with_encoder_attention=config.kind == "encoder-decoder",
        alibi=config.positions.kind == "alibi",
        alibi_use_positive_positions=False,
        **relative(config),
        **shared(config),
    )
    fill_stack(decoder, decoder.embeddings, model.embedding, model.decoder, config, positions)
    decoder.projection.weight = array(model.embedding.weight if model.output.weight is None else model.output.weight)
    if model.output.bias is not None:
        decoder.projection.bias = array(model.output.bias)
    if isinstance(model, DecoderOnly):
        spec = transformer_spec.TransformerDecoderModelSpec(decoder)
        spec.register_vocabulary(words)
    else:
        encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, **relative(config), **shared(config))
        fill_stack(
            encoder, encoder.embeddings[0], model.source_embedding or model.embedding, model.encoder, config, positions
        )
        spec = transformer_spec.TransformerSpec(encoder, decoder)
        spec.register_source_vocabulary(source_words or words)
        spec.register_target_vocabulary(words)
    spec.config.layer_norm_epsilon = config.norm.epsilon
    return spec


def shared(config: ModelConfig) -> dict[str, Any]:
    """What both stacks are told."""
    from ctranslate2.specs import common_spec

    return {
        "num_heads": config.heads,
        "pre_norm": config.norm.placement == "pre",
        "no_final_norm": not config.norm.final,
        "activation": common_spec.Activation[ACTIVATIONS[config.activation]],
        "layernorm_embedding": config.embedding.norm,
        "ffn_glu": config.activation == "swiglu",
        "rms_norm": config.norm.kind == "rms",
        "num_heads_kv": config.kv_heads,
        "head_dim": config.head_dim,
        "qk_norm": config.qk_norm,
    }


def relative(config: ModelConfig) -> dict[str, Any]:
    from ctranslate2.specs import attention_spec

    if config.positions.kind != "rope":
        return {}
    interleaved = config.positions.layout == "interleaved"
    told = {"rotary_dim": 0, "rotary_interleave": interleaved, "rotary_base": config.positions.base}
    if (scaling := config.positions.scaling) is not None:
        told |= {
            "rotary_scaling_type": attention_spec.RotaryScalingType.Linear,
            "rotary_scaling_factor": scaling.factor,
        }
    return told


def fill_stack(
    spec: Any, embeddings: Any, embedding: TokenEmbedding, stack: Any, config: ModelConfig, positions: int
) -> None:
    """The embedding and the layers of the encoder or the decoder."""
    embeddings.weight = array(embedding.weight)
    spec.scale_embeddings = config.embedding.scaled
    if config.positions.kind not in ("rope", "alibi"):
        spec.position_encodings.encodings = position_table(embedding, config, positions)
    if embedding.norm is not None:
        norm(spec.layernorm_embedding, embedding.norm)
    if stack.norm is not None:
        norm(spec.layer_norm, stack.norm)
    for place, layer in zip(spec.layer, stack.layers, strict=True):
        own, cross, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        linear(place.self_attention.linear[0], own.query, own.key, own.value)
        linear(place.self_attention.linear[1], own.out)
        norm(place.self_attention.layer_norm, layer.self_attention_residual.norm)
        if config.qk_norm:
            norm(place.self_attention.q_norm, own.query_norm)
            norm(place.self_attention.k_norm, own.key_norm)
        if cross is not None:
            linear(place.attention.linear[0], cross.query)
            linear(place.attention.linear[1], cross.key, cross.value)
            linear(place.attention.linear[2], cross.out)
            norm(place.attention.layer_norm, layer.cross_attention_residual.norm)
        linear(place.ffn.linear_0, feed.inner if feed.gate is None else feed.gate)
        if feed.gate is not None:
            linear(place.ffn.linear_0_noact, feed.inner)
        linear(place.ffn.linear_1, feed.outer)
        norm(place.ffn.layer_norm, layer.feed_forward_residual.norm)


def position_table(embedding: TokenEmbedding, config: ModelConfig, rows: int) -> Any:
    """What is added to the embeddings; nothing, as a table, where positions are not known."""
    if isinstance(embedding.positions, LearnedPositions):
        return array(embedding.positions.weight)
    if config.positions.kind == "none":
        return array(torch.zeros(rows, config.d_model))
    return array(
        sinusoids(rows, config.d_model, config.positions.base, config.positions.layout, config.positions.start)
    )


def linear(place: Any, *maps: nn.Linear) -> None:
    """Several maps of one input are one matrix there."""
    place.weight = array(torch.cat([one.weight for one in maps]))
    if any(one.bias is not None for one in maps):
        place.bias = array(torch.cat([torch.zeros(len(m.weight)) if m.bias is None else m.bias for m in maps]))


def norm(place: Any, ours: Any) -> None:
    place.gamma = array(ours.weight)
    if hasattr(place, "beta"):
        bias = getattr(ours, "bias", None)
        place.beta = array(torch.zeros_like(ours.weight) if bias is None else bias)


def array(tensor: Tensor) -> Any:
    return tensor.detach().float().numpy()
