"""Language models of the GPT kind: minGPT, nanoGPT and their relatives."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.wild.clone import Clone, wild
from clearhead import doctor
from clearhead.doctor.describe import Description


def forward_for_logits(model: Any, tokens: Tensor) -> Tensor:
    """nanoGPT's forward gives the last position's logits unless it gets targets."""
    return model(tokens, tokens)


def loss_of_pair(model: Any, tokens: Tensor) -> Tensor:
    """The loss of forward(idx, targets), which returns (logits, loss)."""
    return model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())[1]


def mean_of_means(model: Any, optimizer: Any, batches: Any) -> None:
    """nanoGPT's update; its micro-batches are all of one size."""
    for batch in batches:
        (loss_of_pair(model, batch) / len(batches)).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@wild("karpathy/nanoGPT")
def nanogpt(clone: Clone) -> Description:
    code = clone.module("model")
    script = clone.definitions("train.py", warmup_iters=20, lr_decay_iters=200, learning_rate=6e-4, min_lr=6e-5)

    def build(vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int, dropout: float) -> nn.Module:
        return code.GPT(code.GPTConfig(block_size, vocab_size, n_layer, n_head, n_embd, dropout))

    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        return model.generate(tokens, count, temperature=0.01, top_k=1)  # the one most likely token: greedy

    return doctor.CausalLM(
        build=build,
        forward=forward_for_logits,
        loss=loss_of_pair,
        generate=generate,
        optimizer=lambda model: model.configure_optimizers(0.1, 6e-4, (0.9, 0.95), "cpu"),
        update=mean_of_means,
        clip=1.0,
        learning_rate=script.get_lr,
        warmup=20,
        positions="absolute",
        tied=True,
    )


@wild("karpathy/minGPT")
def mingpt(clone: Clone) -> Description:
    code = clone.module("mingpt.model")

    def build(vocab: int, max_length: int, layers: int, heads: int, width: int, dropout: float) -> nn.Module:
        config = code.GPT.get_default_config()
        config.model_type = None
        config.vocab_size, config.block_size = vocab, max_length
        config.n_layer, config.n_head, config.n_embd = layers, heads, width
        config.embd_pdrop = config.resid_pdrop = config.attn_pdrop = dropout
        return code.GPT(config)

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        loss = loss_of_pair(model, torch.cat(batches))  # it does not accumulate
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    train = SimpleNamespace(weight_decay=0.1, learning_rate=3e-4, betas=(0.9, 0.95))
    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        loss=loss_of_pair,
        generate=lambda model, tokens, count: model.generate(tokens, count),
        optimizer=lambda model: model.configure_optimizers(train),
        update=update,
        clip=1.0,
        positions="absolute",
        tied=False,
    )


@wild("karpathy/ng-video-lecture")
def video_lecture(clone: Clone) -> Description:
    def build(vocab_size: int, block_size: int, n_layer: int, n_head: int, n_embd: int, dropout: float) -> nn.Module:
        sizes = {"vocab_size": vocab_size, "block_size": block_size, "n_layer": n_layer, "n_head": n_head}
        script = clone.definitions("gpt.py", **sizes, n_embd=n_embd, dropout=dropout, device="cpu")
        return script.GPTLanguageModel()

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of_pair(model, torch.cat(batches)).backward()
        optimizer.step()

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        loss=loss_of_pair,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=3e-4),
        update=update,
        positions="absolute",
        tied=False,
    )


@wild("karpathy/llama2.c")
def llama2c(clone: Clone) -> Description:
    code = clone.module("model")

    def build(vocab_size: int, dim: int, n_layers: int, n_heads: int, n_kv_heads: int, max_seq_len: int,
              dropout: float) -> nn.Module:  # fmt: skip
        sizes = {"dim": dim, "n_layers": n_layers, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        more = {"vocab_size": vocab_size, "max_seq_len": max_seq_len, "dropout": dropout, "multiple_of": 8}
        return code.Transformer(code.ModelArgs(**sizes, **more))

    def loss(model: Any, tokens: Tensor) -> Tensor:
        model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        return model.last_loss

    return doctor.CausalLM(
        build=build,
        forward=forward_for_logits,
        loss=loss,
        generate=lambda model, tokens, count: model.generate(tokens, count, temperature=0.0),
        optimizer=lambda model: model.configure_optimizers(0.1, 5e-4, (0.9, 0.95), "cpu"),
        positions="rotary",
        tied=True,
    )


@wild("karpathy/nanochat")
def nanochat(clone: Clone) -> Description:
    clone.absent("filelock", "rustbpe", "datasets", "wandb", "psutil", "kernels")
    code = clone.module("nanochat.gpt")
    engine = clone.module("nanochat.engine")

    def build(vocab: int = 61, width: int = 96, heads: int = 6, kv_heads: int = 3, layers: int = 2,
              max_length: int = 640) -> nn.Module:  # fmt: skip
        sizes = {"n_head": heads, "n_kv_head": kv_heads, "n_embd": width, "n_layer": layers}
        config = code.GPTConfig(sequence_len=max_length, vocab_size=vocab, window_pattern="L", **sizes)
        model = code.GPT(config, pad_vocab_size_to=1)
        model.init_weights()
        return model

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        config = model.config
        if cache is None:
            shape = {"num_heads": config.n_kv_head, "head_dim": config.n_embd // config.n_head}
            cache = engine.KVCache(
                batch_size=tokens.size(0), seq_len=config.sequence_len, num_layers=config.n_layer, device="cpu",
                dtype=torch.float32, **shape,
            )  # fmt: skip
        return model(tokens, kv_cache=cache), cache

    def loss(model: Any, tokens: Tensor) -> Tensor:
        return model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())

    # a forward pass of one token is refused on purpose; the first 24 features feed the gate, so width is not tiny
    return doctor.CausalLM(
        build=build, forward=lambda model, tokens: model(tokens), cached=cached, loss=loss, dtype=torch.float32,
        positions="rotary", sizes={"width": 96, "heads": 6, "kv_heads": 3}, tied=False,
    )  # fmt: skip


@wild("graykode/gpt-2-Pytorch")
def graykode_gpt2(clone: Clone) -> Description:
    code, config = clone.module("GPT2.model"), clone.module("GPT2.config")
    sample = clone.module("GPT2.sample")

    def build(vocab: int, n_positions: int, n_embd: int, n_layer: int, n_head: int) -> nn.Module:
        return code.GPT2LMHeadModel(config.GPT2Config(vocab, n_positions, n_positions, n_embd, n_layer, n_head))

    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        options = {"batch_size": 1, "device": "cpu", "sample": False}
        rows = [sample.sample_sequence(model, count, context=row, **options) for row in tokens.tolist()]
        return torch.cat(rows)

    def loss(model: Any, tokens: Tensor) -> Tensor:
        return model(tokens[:, :-1].contiguous(), lm_labels=tokens[:, 1:].contiguous())

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        cached=lambda model, tokens, cache: model(tokens, past=cache),
        reorder=lambda cache, rows: [layer[:, rows] for layer in cache],
        generate=generate,
        loss=loss,
        positions="absolute",
        tied=True,
    )


@wild("pytorch/examples")
def word_language_model(clone: Clone) -> Description:
    code = clone.module("model", under="word_language_model")

    def build(vocab: int, width: int, heads: int, layers: int, dropout: float) -> nn.Module:
        return code.TransformerModel(vocab, width, heads, 2 * width, layers, dropout)

    def forward(model: Any, tokens: Tensor) -> Tensor:
        return model(tokens.t()).transpose(0, 1)  # the model wants the sequence first

    def loss(model: Any, tokens: Tensor) -> Tensor:
        columns = tokens.t()
        return F.nll_loss(model(columns[:-1]).view(-1, model.decoder.out_features), columns[1:].reshape(-1))

    return doctor.CausalLM(build=build, forward=forward, loss=loss, positions="absolute", tied=False)
