"""rasbt/LLMs-from-scratch: the package of the book, with its models for decoding with a cache."""

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bench.wild.clone import Clone, wild
from clearhead import doctor
from clearhead.doctor.describe import Description

BOOK = "rasbt/LLMs-from-scratch"


def load(clone: Clone, name: str) -> Any:
    clone.absent("tensorflow", "chainlit", "jupyterlab", "requests", "tokenizers", "safetensors", "huggingface_hub")
    sys.path.insert(0, str(clone.folder / "pkg"))
    return clone.module(f"llms_from_scratch.{name}", under="pkg")


def sized(model: Any) -> Any:
    """A builder for the GPTs of the book, which take one dictionary."""

    def build(vocab_size: int, context_length: int, emb_dim: int, n_heads: int, n_layers: int,
              drop_rate: float) -> nn.Module:  # fmt: skip
        sizes = {"vocab_size": vocab_size, "context_length": context_length, "emb_dim": emb_dim}
        more = {"n_heads": n_heads, "n_layers": n_layers, "drop_rate": drop_rate, "qkv_bias": False}
        return model({**sizes, **more})

    return build


def loss_with(chapter: Any) -> Any:
    def loss(model: Any, tokens: Tensor) -> Tensor:
        return chapter.calc_loss_batch(tokens[:, :-1], tokens[:, 1:], model, "cpu")

    return loss


@wild(BOOK)
def gpt(clone: Clone) -> Description:
    code, training = load(clone, "ch04"), load(clone, "ch05")
    loss = loss_with(training)

    def update(model: Any, optimizer: Any, batches: Any) -> None:
        optimizer.zero_grad()
        loss(model, torch.cat(batches)).backward()
        optimizer.step()

    return doctor.CausalLM(
        build=sized(code.GPTModel),
        forward=lambda model, tokens: model(tokens),
        loss=loss,
        generate=lambda model, tokens, count: code.generate_text_simple(model, tokens, count, 640),
        update=update,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.1),
        positions="absolute",
        tied=False,
    )


@wild(BOOK)
def gpt_fast(clone: Clone) -> Description:
    code, training = load(clone, "ch04"), load(clone, "ch05")
    return doctor.CausalLM(
        build=sized(code.GPTModelFast),
        forward=lambda model, tokens: model(tokens),
        loss=loss_with(training),
        positions="absolute",
    )


@wild(BOOK)
def gpt_generate(clone: Clone) -> Description:
    decoding = load(clone, "kv_cache.generate")

    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        return decoding.generate_text_simple(model, tokens, count, 640)

    return replace(gpt_cached(clone), cached=None, generate=generate)


@wild(BOOK)
def gpt_cached(clone: Clone) -> doctor.CausalLM:
    code, caches = load(clone, "kv_cache.gpt2"), load(clone, "kv_cache.utils")

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        layers, position = cache or (caches.KVCache(len(model.trf_blocks)), 0)
        model.current_pos = position  # the model counts for one request at a time
        logits = model(tokens, use_cache=True, cache=layers)
        position, model.current_pos = model.current_pos, 0
        return logits, (layers, position)

    return doctor.CausalLM(
        build=sized(code.GPTModel),
        forward=lambda model, tokens: model(tokens),
        cached=cached,
        positions="absolute",
        tied=False,
    )


def grouped(clone: Clone, name: str, model_name: str, more: dict[str, Any]) -> dict[str, Any]:
    """What the book's Llama 3 and Qwen 3 with a cache have in common."""
    code, caches = load(clone, f"kv_cache.{name}"), load(clone, "kv_cache.utils")
    decoding = load(clone, "kv_cache.generate")

    def build(vocab_size: int, context_length: int, emb_dim: int, n_heads: int, n_kv_heads: int,
              n_layers: int) -> nn.Module:  # fmt: skip
        sizes = {"vocab_size": vocab_size, "context_length": context_length, "emb_dim": emb_dim, "n_heads": n_heads}
        rest = {"n_kv_groups": n_kv_heads, "n_layers": n_layers, "hidden_dim": 2 * emb_dim, "dtype": torch.float32}
        return getattr(code, model_name)({**sizes, **rest, **more})

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        layers, position = cache or (caches.KVCache(model.cfg["n_layers"]), 0)
        model.current_pos = position
        logits = model(tokens, cache=layers)
        position = model.current_pos
        model.reset_kv_cache()
        return logits, (layers, position)

    return {
        "build": build,
        "forward": lambda model, tokens: model(tokens),
        "cached": cached,
        "generate": lambda model, tokens, count: decoding.generate_text_simple(model, tokens, count),
        "dtype": torch.float32,
        "positions": "rotary",
        "tied": False,
    }


@wild(BOOK)
def llama3_cached(clone: Clone) -> Description:
    frequencies = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context_length": 8192}
    more = {"rope_base": 500_000.0, "rope_freq": frequencies}
    return doctor.CausalLM(**grouped(clone, "llama3", "Llama3Model", more))


@wild(BOOK)
def qwen3_cached(clone: Clone) -> Description:
    more = {"rope_base": 1_000_000.0, "qk_norm": True, "head_dim": 8}
    return doctor.CausalLM(**grouped(clone, "qwen3", "Qwen3Model", more), scaled=False)
