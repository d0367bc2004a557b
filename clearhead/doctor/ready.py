"""Ready descriptions for PyTorch's own Transformer and for the models of the `transformers` library.

Neither is imported here: the caller hands in the class, so the doctor goes on needing only torch.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.doctor.describe import CausalLM, Description, Encoder, EncoderDecoder
from clearhead.errors import InputError


class Around(nn.Module):
    """PyTorch's Transformer stacks begin and end at vectors: this adds embeddings before and a head behind."""

    def __init__(self, core: nn.Module, vocab: int, width: int, max_length: int) -> None:
        super().__init__()
        self.core = core
        self.embedding, self.position = nn.Embedding(vocab, width), nn.Embedding(max_length, width)
        self.head = nn.Linear(width, vocab)
        for table in (self.embedding, self.position):
            nn.init.normal_(table.weight, std=0.02)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.position(torch.arange(tokens.size(1), device=tokens.device))

    def forward(self, source: Tensor, target: Tensor, source_real: Tensor | None, target_real: Tensor | None) -> Tensor:
        future = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        hidden = None if source_real is None else ~source_real
        out = self.core(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_key_padding_mask=None if target_real is None else ~target_real,
        )
        return self.head(out)


def from_torch(transformer: Callable[..., nn.Module], **options: Any) -> EncoderDecoder:
    """Describe `torch.nn.Transformer`, or a class with its constructor; `options` go to it (norm_first=True, ...)."""

    def build(
        vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640, dropout: float = 0.1
    ) -> nn.Module:
        core = transformer(width, heads, layers, layers, 4 * width, dropout, batch_first=True, **options)
        return Around(core, vocab, width, max_length)

    return EncoderDecoder(
        name=f"{transformer.__module__}.{transformer.__qualname__}",
        build=build,
        forward=lambda model, source, target, source_real=None, target_real=None: model(
            source, target, source_real, target_real
        ),
        positions="absolute",
    )


SIZES = {  # our names for sizes, and what configurations of `transformers` call them
    "vocab": ("vocab_size",),
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
    "kv_heads": ("num_key_value_heads",),
    "layers": (
        "num_hidden_layers",
        "n_layer",
        "num_layers",
        "num_decoder_layers",
        "encoder_layers",
        "decoder_layers",
    ),
    "max_length": ("max_position_embeddings", "n_positions"),
}
DROPOUTS = (
    "dropout", "attention_dropout", "activation_dropout", "dropout_rate", "hidden_dropout_prob", "resid_pdrop",
    "attention_probs_dropout_prob", "embd_pdrop", "attn_pdrop",
)  # fmt: skip


def resized(config: Any, sizes: dict[str, Any]) -> Any:
    """A copy of a configuration with other sizes, under whichever names it has."""
    config = copy.deepcopy(config)
    for size, value in sizes.items():
        for name in SIZES.get(size, ()):
            if getattr(config, name, None) is not None:
                setattr(config, name, value)
    if "dropout" in sizes:
        for name in DROPOUTS:
            if hasattr(config, name):
                setattr(config, name, sizes["dropout"])
    for name in ("intermediate_size", "n_inner", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"):
        if getattr(config, name, None) is not None:
            setattr(config, name, 4 * sizes["width"])
    if isinstance(getattr(config, "head_dim", None), int):
        config.head_dim = sizes["width"] // sizes["heads"]
    # token ids that mean something must exist in the smaller vocabulary
    for name in ("bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_eos_token_id", "pad_token_id"):
        if isinstance(getattr(config, name, None), int) and getattr(config, name) >= sizes["vocab"]:
            setattr(config, name, 1)
    return config


def from_transformers(model_class: Callable[..., nn.Module], config: Any, **declared: Any) -> Description:
    """Describe a model class of `transformers` with a configuration; the doctor asks for tiny versions of it.

    The kind follows from the class: with an encoder and a decoder, causal, or an encoder. `declared` overrides any
    field of the description, for example positions="rotary" or window=4.
    """
    if getattr(config, "vocab_size", None) is None:
        raise InputError(f"{type(config).__name__} has no vocab_size: the doctor cannot make tokens for it")
    grouped = getattr(config, "num_key_value_heads", None) is not None
    name = getattr(model_class, "__name__", "model")

    def make(**sizes: Any) -> nn.Module:
        return model_class(resized(config, sizes))

    if grouped:

        def build(
            vocab: int = 61, width: int = 48, heads: int = 6, kv_heads: int = 3, layers: int = 2,
            max_length: int = 640, dropout: float = 0.1,
        ) -> nn.Module:  # fmt: skip
            return make(vocab=vocab, width=width, heads=heads, kv_heads=kv_heads, layers=layers,
                        max_length=max_length, dropout=dropout)  # fmt: skip
    else:

        def build(  # type: ignore[misc]
            vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
            dropout: float = 0.1,
        ) -> nn.Module:  # fmt: skip
            return make(vocab=vocab, width=width, heads=heads, layers=layers, max_length=max_length, dropout=dropout)

    tied = getattr(config, "tie_word_embeddings", None)
    if getattr(config, "is_encoder_decoder", False):
        return EncoderDecoder(name=name, build=build, **{**translating(), "tied": tied, **declared})
    if "CausalLM" in name or "LMHead" in name:
        return CausalLM(name=name, build=build, **{**generating(), "tied": tied, **declared})
    return Encoder(
        name=name,
        build=build,
        **{"forward": lambda model, tokens, real=None: model(tokens, attention_mask=ones(real)), **declared},
    )


def ones(real: Tensor | None) -> Tensor | None:
    """`transformers` wants padding masks as integers."""
    return None if real is None else real.long()


def generating() -> dict[str, Any]:
    """How to run, cache and train a causal model of `transformers`."""

    def forward(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None:
            return model(tokens, use_cache=False).logits
        positions = (real.long().cumsum(-1) - 1).clamp(min=0)
        return model(tokens, attention_mask=real.long(), position_ids=positions, use_cache=False).logits

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        out = model(tokens, past_key_values=cache, use_cache=True)
        return out.logits, out.past_key_values

    def reorder(cache: Any, rows: Tensor) -> Any:
        cache.reorder_cache(rows)
        return cache

    return {
        "forward": forward,
        "cached": cached,
        "reorder": reorder,
        "loss": lambda model, tokens: model(tokens, labels=tokens).loss,
    }


def translating() -> dict[str, Any]:
    """How to run and train an encoder-decoder of `transformers`."""

    def forward(
        model: Any,
        source: Tensor,
        target: Tensor,
        source_real: Tensor | None = None,
        target_real: Tensor | None = None,
    ) -> Tensor:
        masks = {"attention_mask": ones(source_real), "decoder_attention_mask": ones(target_real)}
        return model(input_ids=source, decoder_input_ids=target, use_cache=False, **masks).logits

    def cached(model: Any, source: Tensor, target: Tensor, state: Any) -> tuple[Tensor, Any]:
        memory, cache = state or (model.get_encoder()(source), None)
        out = model(encoder_outputs=memory, decoder_input_ids=target, past_key_values=cache, use_cache=True)
        return out.logits, (memory, out.past_key_values)

    return {
        "forward": forward,
        "cached": cached,
        "loss": lambda model, source, target: (
            model(input_ids=source, decoder_input_ids=target[:, :-1], labels=target[:, 1:].contiguous()).loss
        ),
    }
