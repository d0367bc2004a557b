"""Small models of seven further repositories: language models, an encoder and two translators."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.wild.clone import Clone, wild
from bench.wild.gpts import loss_of_pair
from bench.wild.translators import PAD, one_step, with_pads
from clearhead import doctor
from clearhead.doctor.describe import Description


@wild("karpathy/makemore")
def makemore(clone: Clone) -> Description:
    clone.absent("torch.utils.tensorboard")
    code = clone.definitions("makemore.py")

    def build(vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int) -> nn.Module:
        return code.Transformer(code.ModelConfig(block_size, vocab_size, n_layer, n_embd, n_embd, n_head))

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens)[0],
        loss=loss_of_pair,
        generate=lambda model, tokens, count: code.generate(model, tokens, count),
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01, betas=(0.9, 0.99)),
        positions="absolute",
        tied=False,
    )


@wild("lucidrains/PaLM-pytorch")
def palm(clone: Clone) -> Description:
    code = clone.module("palm_pytorch.palm_pytorch")
    wrapper = clone.module("palm_pytorch.autoregressive_wrapper")

    def build(vocab: int, width: int, heads: int, layers: int) -> nn.Module:
        return code.PaLM(dim=width, num_tokens=vocab, depth=layers, dim_head=width // heads, heads=heads)

    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        around = wrapper.AutoregressiveWrapper(model).train(model.training)
        made = around.generate(tokens, count, temperature=1e-6)  # greedy
        return torch.cat([tokens, made], dim=1)

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        generate=generate,
        positions="rotary",
        sizes={"width": 64, "heads": 4},
        tied=True,
    )


@wild("huggingface/pytorch-openai-transformer-lm")
def openai_lm(clone: Clone) -> Description:
    code = clone.module("model_pytorch")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        rates = {"embd_pdrop": dropout, "attn_pdrop": dropout, "resid_pdrop": dropout, "clf_pdrop": dropout}
        config = SimpleNamespace(n_embd=width, n_head=heads, n_layer=layers, afn="gelu", **rates)
        return code.LMModel(config, vocab + max_length, max_length)

    def forward(model: Any, tokens: Tensor) -> Tensor:
        """Positions are the last rows of the embedding; they come beside the tokens, and get logits of their own."""
        vocab = model.transformer.vocab - model.transformer.h[0].attn.b.size(-1)
        positions = torch.arange(vocab, vocab + tokens.size(1)).expand_as(tokens)
        model.lm_head.trunc_and_reshape = False
        hidden = model.transformer(torch.stack([tokens, positions], dim=-1))
        return model.lm_head(hidden)[..., :vocab]

    return doctor.CausalLM(build=build, forward=forward, positions="absolute", tied=True)


@wild("huggingface/nanoVLM")
def nanovlm_decoder(clone: Clone) -> Description:
    code, configs = clone.module("models.language_model"), clone.module("models.config")

    def build(vocab: int, width: int, heads: int, kv_heads: int, layers: int, dropout: float) -> nn.Module:
        config = configs.VLMConfig(
            lm_hidden_dim=width, lm_inter_dim=2 * width, lm_vocab_size=vocab, lm_n_heads=heads, lm_n_kv_heads=kv_heads,
            lm_n_blocks=layers, lm_dropout=dropout, lm_use_tokens=True, lm_max_position_embeddings=1024,
        )  # fmt: skip
        return code.LanguageModel(config)

    def cached(model: Any, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        cache, start = state or (None, 0)
        logits, cache = model(tokens, kv_cache=cache, start_pos=start)
        return logits, (cache, start + tokens.size(1))

    def reorder(state: Any, rows: Tensor) -> Any:
        cache, start = state
        return [{name: held[rows] for name, held in block.items()} for block in cache], start

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens)[0],
        cached=cached,
        reorder=reorder,
        generate=lambda model, tokens, count: model.generate(tokens, count),
        positions="rotary",
        tied=True,
    )


@wild("dhlee347/pytorchic-bert")
def pytorchic_bert(clone: Clone) -> Description:
    clone.absent("fire", "six", "tensorflow", "tqdm", "tensorboardX")
    code = clone.module("models")
    pretrain, optim = clone.definitions("pretrain.py"), clone.definitions("optim.py")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        return pretrain.BertModel4Pretrain(
            code.Config(vocab, width, layers, heads, 2 * width, dropout, dropout, max_length)
        )

    def forward(model: Any, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        everywhere = torch.arange(tokens.size(1)).expand_as(tokens)
        mask = torch.ones_like(tokens) if real is None else real.long()
        return model(tokens, torch.zeros_like(tokens), mask, everywhere)[0]

    def loss(model: Any, tokens: Tensor, labels: Tensor) -> Tensor:
        """pretrain.py: (loss_lm * masked_weights.float()).mean(), here over the masked tokens."""
        losses = F.cross_entropy(forward(model, tokens, tokens != 0).transpose(1, 2), labels, reduction="none")
        weights = (labels != 0).to(losses.dtype)
        return (losses * weights).sum() / weights.sum()

    return doctor.Encoder(
        build=build,
        forward=forward,
        loss=loss,
        learning_rate=lambda step: optim.warmup_linear((step + 1) / 1000, 0.1),
        warmup=99,
        steps=990,
        pad=0,
        positions="absolute",
        tied=True,
    )


@wild("sgrvinod/a-PyTorch-Tutorial-to-Transformers")
def sgrvinod(clone: Clone) -> Description:
    clone.absent("wget", "youtokentome", "tqdm", "codecs")
    code, made = clone.module("model"), clone.module("utils")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int, dropout: float) -> nn.Module:
        table = made.get_positional_encoding(width, max_length)
        sizes = {"d_queries": width // heads, "d_values": width // heads, "d_inner": 2 * width}
        return code.Transformer(vocab, table, width, heads, n_layers=layers, dropout=dropout, **sizes)

    def lengths(tokens: Tensor, real: Tensor | None) -> Tensor:
        """It takes lengths, so padding is on the right, and no row is empty."""
        if real is None:
            return torch.full((tokens.size(0),), tokens.size(1))
        if bool((real.long().diff(dim=1) > 0).any()) or bool((~real[:, 0]).any()):
            raise ValueError("padding on the right only, and at least one token")
        return real.sum(1)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Any = None, target_real: Any = None) -> Tensor:
        return model(source, target, lengths(source, source_real), lengths(target, target_real))

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        counted = (target != PAD).sum(1)
        logits = model(source, target, (source != PAD).sum(1), counted)
        return code.LabelSmoothedCE(eps=0.1)(logits, target[:, 1:], counted - 1)

    return doctor.EncoderDecoder(
        build=build,
        forward=forward,
        loss=loss,
        label_smoothing=0.1,
        update=one_step(loss),
        optimizer=lambda model: torch.optim.Adam([p for p in model.parameters() if p.requires_grad], betas=(0.9, 0.98)),
        learning_rate=lambda step: made.get_lr(step=step + 1, d_model=512, warmup_steps=40),
        warmup=39,
        pad=PAD,
        positions="absolute",
        tied=True,
    )


@wild("jsbaan/transformer-from-scratch")
def jsbaan(clone: Clone) -> Description:
    code, made, rates = clone.module("transformer"), clone.module("utils"), clone.module("lr_scheduler")

    def build(vocab: int, width: int, heads: int, layers: int, dropout: float) -> nn.Module:
        return code.Transformer(width, 2 * width, heads, layers, 64, vocab, PAD, 2, dropout, True)

    def forward(model: Any, source: Tensor, target: Tensor, source_real: Any = None) -> Tensor:
        source = with_pads(source, source_real)
        real = source != PAD
        memory = model.encoder(source, src_padding_mask=real)
        return model.decoder(target, memory, real, made.construct_future_mask(target.size(1)))

    def loss(model: Any, source: Tensor, target: Tensor) -> Tensor:
        logits = forward(model, source, target)[:, :-1]
        return nn.CrossEntropyLoss(ignore_index=PAD)(logits.permute(0, 2, 1), target[:, 1:])

    return doctor.EncoderDecoder(
        build=build,
        forward=forward,
        loss=loss,
        update=one_step(loss),
        learning_rate=lambda step: rates.NoamOpt(512, 2, 40, None).rate(step + 1),
        warmup=39,
        pad=PAD,
        positions="absolute",
        tied=True,
    )
