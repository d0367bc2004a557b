"""Libraries: whisper, labml-nn, x-transformers. tests/doctor/test_wild.py examines the installed packages so, too."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.wild.clone import Clone, wild
from clearhead import doctor
from clearhead.doctor.describe import Description


@wild("openai/whisper")
def whisper(clone: Clone) -> Description:
    """The text decoder; what it hears is held still."""
    clone.absent("numba", "more_itertools")
    code = clone.module("whisper.model")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int) -> nn.Module:
        sizes = {"n_audio_state": width, "n_audio_head": heads, "n_audio_layer": 1, "n_text_state": width}
        more = {"n_text_head": heads, "n_text_layer": layers, "n_vocab": vocab, "n_text_ctx": max_length}
        model = code.Whisper(code.ModelDimensions(n_mels=4, n_audio_ctx=5, **sizes, **more))
        nn.init.normal_(model.decoder.positional_embedding, std=0.01)  # it is left to the checkpoint
        return model

    def audio(model: Any, rows: int) -> Tensor:
        mel = torch.arange(40).reshape(1, 4, 10).sin().to(model.decoder.ln.weight.dtype)
        return model.encoder(mel).expand(rows, -1, -1)

    def forward(model: Any, tokens: Tensor) -> Tensor:
        return model.decoder(tokens, audio(model, len(tokens)))

    def plain(model: Any, tokens: Tensor) -> Tensor:
        with code.disable_sdpa():
            return forward(model, tokens)

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        cache, hooks = model.install_kv_cache_hooks(cache)
        try:
            return model.decoder(tokens, audio(model, len(tokens)), kv_cache=cache), cache
        finally:
            for hook in hooks:
                hook.remove()

    return doctor.CausalLM(
        build=build,
        forward=forward,
        paths={"without the fused kernel": plain},
        cached=cached,
        reorder=lambda cache, rows: {module: kept[rows] for module, kept in cache.items()},
        positions="absolute",
        tied=True,
    )


LABML = "labmlai/annotated_deep_learning_paper_implementations"


def from_labml(clone: Clone, *names: str) -> list[Any]:
    """Its modules on Transformers, without the experiments around them."""
    clone.absent("labml", "labml_helpers", "torchvision", "torchtext", "einops", "fairscale", "cv2", "PIL")
    clone.package("labml_nn")
    return [clone.module(f"labml_nn.transformers.{name}") for name in names]


def labml_gpt(clone: Clone, attention: str = "") -> Description:
    """The GPT of labml-nn; with other attention for ALiBi or rotary positions, as its experiments do."""
    models, code, mha, ffn, alibi, rope = from_labml(clone, "models", "gpt", "mha", "feed_forward", "alibi", "rope")
    kind = {
        "": lambda heads, width, dropout: mha.MultiHeadAttention(heads, width, dropout),
        "alibi": lambda heads, width, dropout: alibi.AlibiMultiHeadAttention(heads, width, dropout),
        "rope": lambda heads, width, dropout: rope.RotaryPEMultiHeadAttention(heads, width, 1.0, dropout),
    }[attention]

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        layer = models.TransformerLayer(
            d_model=width,
            self_attn=kind(heads, width, dropout),
            feed_forward=ffn.FeedForward(width, 2 * width, dropout, nn.GELU()),
            dropout_prob=dropout,
        )
        learned = models.EmbeddingsWithLearnedPositionalEncoding(width, vocab, max_length)
        embedding = learned if not attention else nn.Embedding(vocab, width)
        model = code.GPT(models.Encoder(layer, layers), embedding, models.Generator(vocab, width))
        return model.apply(code._init_weights)

    def forward(model: Any, tokens: Tensor) -> Tensor:
        return model(tokens.t())[0].transpose(0, 1)  # the sequence first

    def loss(model: Any, tokens: Tensor) -> Tensor:
        columns = tokens.t()
        outputs = model(columns[:-1])[0]
        return F.cross_entropy(outputs.reshape(-1, outputs.shape[-1]), columns[1:].reshape(-1))

    positions = {"": "absolute", "alibi": "alibi", "rope": "rotary"}[attention]
    return doctor.CausalLM(build=build, forward=forward, loss=loss, positions=positions, tied=False)


@wild(LABML)
def translator(clone: Clone) -> Description:
    models, ffn, mha = from_labml(clone, "models", "feed_forward", "mha")
    masks, losses = from_labml(clone, "utils", "label_smoothing_loss")
    pad = 1

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        def layer(cross: bool) -> Any:
            attend = mha.MultiHeadAttention
            return models.TransformerLayer(
                d_model=width,
                self_attn=attend(heads, width, dropout),
                src_attn=attend(heads, width, dropout) if cross else None,
                feed_forward=ffn.FeedForward(width, 2 * width, dropout),
                dropout_prob=dropout,
            )

        embed = models.EmbeddingsWithPositionalEncoding
        return models.EncoderDecoder(
            models.Encoder(layer(False), layers), models.Decoder(layer(True), layers), embed(width, vocab, max_length),
            embed(width, vocab, max_length), models.Generator(vocab, width),
        )  # fmt: skip

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Tensor | None = None) -> Tensor:
        real = torch.ones_like(source, dtype=torch.bool) if source_real is None else source_real
        source_mask = real.t()[None]  # (1, keys, rows)
        hidden = model(source.t(), target.t(), source_mask, masks.subsequent_mask(target.size(1)))
        return model.generator(hidden).transpose(0, 1)

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logs = forward(model, source, target[:, :-1], source != pad).log_softmax(-1)
        gold = target[:, 1:].flatten()
        criterion = losses.LabelSmoothingLoss(logs.size(-1), pad, 0.1)
        return criterion(logs.flatten(0, 1), gold) / (gold != pad).sum()

    return doctor.EncoderDecoder(
        build=build, forward=forward, loss=loss, label_smoothing=0.1, pad=pad, positions="absolute", tied=False
    )


@wild(LABML)
def gpt(clone: Clone) -> Description:
    return labml_gpt(clone)


@wild(LABML)
def gpt_alibi(clone: Clone) -> Description:
    return labml_gpt(clone, "alibi")


@wild(LABML)
def gpt_rope(clone: Clone) -> Description:
    return labml_gpt(clone, "rope")


@wild("lucidrains/x-transformers")
def decoder(clone: Clone) -> Description:
    """The parts of a Llama, and the cache."""
    code, wrapper = clone.module("x_transformers.x_transformers"), clone.module("x_transformers.autoregressive_wrapper")

    def build(vocab: int, width: int, heads: int, kv_heads: int, layers: int, max_length: int) -> nn.Module:
        sizes = {"dim": width, "depth": layers, "heads": heads, "attn_kv_heads": kv_heads}
        kinds = {"use_rmsnorm": True, "ff_swish": True, "ff_glu": True, "rotary_pos_emb": True}
        stack = code.Decoder(**sizes, **kinds, attn_dim_head=width // heads)
        return code.TransformerWrapper(
            num_tokens=vocab, max_seq_len=max_length, use_abs_pos_emb=False, attn_layers=stack
        )

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        seen, kept = cache or (tokens[:, :0], None)
        seen = torch.cat([seen, tokens], dim=1)
        new = {"cache_age": tokens.size(1)} if kept is not None else {}  # it wants all tokens, and computes the new
        logits, kept = model(seen, cache=kept, return_intermediates=True, **new)
        return logits, (seen, kept)

    def wrapped(model: Any) -> Any:
        return wrapper.AutoregressiveWrapper(model).train(model.training)

    def loss(model: Any, tokens: Tensor) -> Tensor:
        return wrapped(model)(tokens)

    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        return torch.cat([tokens, wrapped(model).generate(tokens, count, temperature=0.0)], dim=1)

    return doctor.CausalLM(
        build=build, forward=lambda model, tokens: model(tokens), cached=cached, loss=loss, generate=generate,
        positions="rotary", tied=False,
    )  # fmt: skip
