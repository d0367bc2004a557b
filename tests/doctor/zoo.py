"""Healthy models of other people, described to the doctor: it must not call any of them ill."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.describe import Description


def causal_stack(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
                 dropout: float = 0.1) -> nn.Module:  # fmt: skip
    """A language model built from PyTorch's encoder layers, the way many tutorials do."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.position = nn.Embedding(vocab, width), nn.Embedding(max_length, width)
            # a stack of deep copies starts out equal, which the doctor rightly reports: build the layers apart
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, batch_first=True, norm_first=True)
                for _ in range(layers)
            )
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

        def forward(self, tokens: Tensor) -> Tensor:
            length = tokens.size(1)
            x = self.embedding(tokens) + self.position(torch.arange(length))
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            for layer in self.layers:
                x = layer(x, src_mask=future)
            return self.head(self.norm(x))

    return Model()


def transformers_model(model: str, config: str, declared: dict[str, Any], **options: Any) -> Description:
    import transformers

    transformers.logging.set_verbosity_error()
    made = getattr(transformers, config)(vocab_size=61, **options)
    return doctor.from_transformers(getattr(transformers, model), made, **declared)


def x_transformers(positions: str, causal: bool = True, **options: Any) -> Description:
    import loguru
    from x_transformers import Decoder, Encoder, TransformerWrapper

    loguru.logger.disable("x_transformers")
    absolute = positions == "absolute"

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640,
              dropout: float = 0.1) -> nn.Module:  # fmt: skip
        sizes = {"dim": width, "depth": layers, "heads": heads, "attn_dim_head": width // heads}
        drops = {"attn_dropout": dropout, "ff_dropout": dropout}
        stack = (Decoder if causal else Encoder)(**sizes, **drops, **options)
        return TransformerWrapper(num_tokens=vocab, max_seq_len=max_length, use_abs_pos_emb=absolute, attn_layers=stack)

    kind = doctor.CausalLM if causal else doctor.Encoder

    def forward(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return model(tokens, mask=real)

    return kind(build=build, forward=forward, positions=positions)


def x_encoder_decoder() -> Description:
    from x_transformers import XTransformer

    def build(vocab: int = 61, width: int = 24, heads: int = 3, layers: int = 2, max_length: int = 640) -> nn.Module:
        sizes = {"depth": layers, "heads": heads, "attn_dim_head": width // heads, "max_seq_len": max_length}
        both = {f"{side}_{name}": value for side in ("enc", "dec") for name, value in sizes.items()}
        return XTransformer(dim=width, enc_num_tokens=vocab, dec_num_tokens=vocab, **both)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Tensor | None = None) -> Tensor:
        memory = model.encoder(source, mask=source_real, return_embeddings=True)
        return model.decoder.net(target, context=memory, context_mask=source_real)

    return doctor.EncoderDecoder(build=build, forward=forward, positions="absolute")


def masked_language_model() -> Description:
    def loss(model: Any, tokens: Tensor, labels: Tensor) -> Tensor:
        return model(tokens, attention_mask=(tokens != 0).long(), labels=labels.masked_fill(labels == 0, -100)).loss

    declared = {"positions": "absolute", "pad": 0, "loss": loss}
    return transformers_model("BertForMaskedLM", "BertConfig", declared)


ROTARY, ABSOLUTE, RELATIVE = {"positions": "rotary"}, {"positions": "absolute"}, {"positions": "relative"}
ZOO: dict[str, Callable[[], Description]] = {
    "torch.nn.Transformer": lambda: doctor.from_torch(torch.nn.Transformer),
    "torch.nn.Transformer, pre-norm": lambda: doctor.from_torch(torch.nn.Transformer, norm_first=True),
    "torch.nn.TransformerEncoderLayer, causal": lambda: doctor.CausalLM(
        build=causal_stack, forward=lambda model, tokens: model(tokens), positions="absolute"
    ),
    "GPT-2": lambda: transformers_model("GPT2LMHeadModel", "GPT2Config", ABSOLUTE),
    "GPT-2, eager attention": lambda: transformers_model(
        "GPT2LMHeadModel", "GPT2Config", ABSOLUTE, attn_implementation="eager"
    ),
    "Llama": lambda: transformers_model("LlamaForCausalLM", "LlamaConfig", ROTARY),
    "Mistral, sliding window": lambda: transformers_model(
        "MistralForCausalLM", "MistralConfig", {"positions": "rotary", "window": 4}, sliding_window=4
    ),
    "BERT": lambda: transformers_model("BertModel", "BertConfig", ABSOLUTE),
    "BERT, masked language model": masked_language_model,
    "Marian": lambda: transformers_model("MarianMTModel", "MarianConfig", ABSOLUTE, pad_token_id=0),
    "T5": lambda: transformers_model("T5ForConditionalGeneration", "T5Config", RELATIVE, d_kv=8),
    "T5, gated": lambda: transformers_model(
        "T5ForConditionalGeneration", "T5Config", RELATIVE, d_kv=8, feed_forward_proj="gated-gelu"
    ),
    "x-transformers, absolute": lambda: x_transformers("absolute"),
    "x-transformers, rotary": lambda: x_transformers("rotary", rotary_pos_emb=True),
    "x-transformers, ALiBi": lambda: x_transformers("alibi", alibi_pos_bias=True),
    "x-transformers, T5 bias": lambda: x_transformers("relative", rel_pos_bias=True),
    "x-transformers, flash": lambda: x_transformers("absolute", attn_flash=True),
    "x-transformers, encoder": lambda: x_transformers("absolute", causal=False),
    "x-transformers, encoder-decoder": x_encoder_decoder,
}
