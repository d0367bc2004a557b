"""Language models of the Llama kind, and others that keep their cache inside the model."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bench.wild.clone import Clone, wild
from clearhead import doctor
from clearhead.doctor.describe import Description


def buffers_of(model: Any, names: tuple[str, ...]) -> list[Tensor]:
    return [getattr(m, name).clone() for m in model.modules() for name in names if hasattr(m, name)]


def put_back(model: Any, names: tuple[str, ...], kept: list[Tensor]) -> None:
    """The caches of one request, back into the modules that hold them."""
    places = [(m, name) for m in model.modules() for name in names if hasattr(m, name)]
    for (module, name), tensor in zip(places, kept, strict=True):
        setattr(module, name, tensor.clone())


@wild("evintunador/minLlama3")
def minllama3(clone: Clone) -> Description:
    clone.absent("tiktoken")
    code = clone.module("model")
    names = ("cache_k", "cache_v")

    def build(vocab_size: int, dim: int, n_layers: int, n_heads: int, n_kv_heads: int, max_seq_len: int,
              dropout_rate: float) -> nn.Module:  # fmt: skip
        sizes = {"dim": dim, "n_layers": n_layers, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        more = {"vocab_size": vocab_size, "max_seq_len": max_seq_len, "dropout_rate": dropout_rate, "multiple_of": 8}
        code.params = code.ModelArgs(**sizes, **more)  # a global that the file reads and never sets
        return code.Llama3(code.params, None)

    def forward(model: Any, tokens: Tensor) -> Tensor:
        """The layers as forward() calls them; it refuses other lengths than the longest, and drops out always."""
        h, length = model.tok_embeddings(tokens), tokens.size(1)
        for layer in model.layers:
            h = layer(h, model.freqs_cis[:length], model.mask[:length, :length], training=model.training)
        return model.output(model.norm(h))

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        position, kept = cache or (0, buffers_of(model, names))
        put_back(model, names, kept)
        logits = model.forward_inference(tokens, position, 0)
        return logits, (position + tokens.size(1), buffers_of(model, names))

    def loss(model: Any, tokens: Tensor) -> Tensor:
        logits = forward(model, tokens[:, :-1])
        return model.criterion(logits.flatten(0, 1), tokens[:, 1:].flatten())

    return doctor.CausalLM(
        build=build, forward=forward, cached=cached, loss=loss, dtype=torch.float32, positions="rotary", tied=False
    )


@wild("hkproj/pytorch-llama")
def hkproj_llama(clone: Clone) -> Description:
    code = clone.module("model")
    names = ("cache_k", "cache_v")

    def build(vocab_size: int, dim: int, n_layers: int, n_heads: int, n_kv_heads: int, max_seq_len: int) -> nn.Module:
        sizes = {"dim": dim, "n_layers": n_layers, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        more = {"vocab_size": vocab_size, "max_seq_len": max_seq_len, "multiple_of": 8, "device": "cpu"}
        return code.Transformer(code.ModelArgs(**sizes, **more))

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        position, kept = cache or (0, buffers_of(model, names))
        put_back(model, names, kept)
        logits = [model(token, position + i) for i, token in enumerate(tokens.split(1, dim=1))]
        return torch.cat(logits, dim=1), (position + tokens.size(1), buffers_of(model, names))

    def forward(model: Any, tokens: Tensor) -> Tensor:
        with torch.no_grad():  # it writes into its caches, and takes one token at a time
            return cached(model, tokens, None)[0]

    return doctor.CausalLM(
        build=build, forward=forward, cached=cached, dtype=torch.float32, positions="rotary", tied=False,
        sizes={"max_length": 64},
    )  # fmt: skip


@wild("pbloem/former")
def former(clone: Clone) -> Description:
    clone.absent("torch.utils.tensorboard", "torchtext", "tqdm")
    code = clone.module("former.transformers")

    def build(vocab: int, width: int, heads: int, layers: int, max_length: int) -> nn.Module:
        return code.GTransformer(width, heads, layers, max_length, vocab)

    def loss(model: Any, tokens: Tensor) -> Tensor:
        return F.nll_loss(model(tokens[:, :-1]).transpose(2, 1), tokens[:, 1:], reduction="mean")

    return doctor.CausalLM(
        build=build,
        forward=lambda model, tokens: model(tokens),
        loss=loss,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=1e-4),
        positions="absolute",
        tied=False,
    )


@wild("Lightning-AI/litgpt")
def litgpt(clone: Clone) -> Description:
    clone.absent("lightning", "jsonargparse", "yaml", "psutil", "litdata", "bitsandbytes", "lightning_utilities")
    clone.package("litgpt")
    code, configs = clone.module("litgpt.model"), clone.module("litgpt.config")

    def build(vocab_size: int, block_size: int, n_embd: int, n_layer: int, n_head: int,
              n_query_groups: int) -> nn.Module:  # fmt: skip
        sizes = {"n_embd": n_embd, "n_layer": n_layer, "n_head": n_head, "n_query_groups": n_query_groups}
        more = {"padded_vocab_size": vocab_size, "rotary_percentage": 1.0, "parallel_residual": False}
        kinds = {"norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": 2 * n_embd}
        return code.GPT(configs.Config(block_size=block_size, vocab_size=vocab_size, **sizes, **more, **kinds))

    def cached(model: Any, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        position, kept = cache or (0, None)
        model.set_kv_cache(batch_size=tokens.size(0), dtype=next(model.parameters()).dtype)
        blocks = [block.attn.kv_cache for block in model.transformer.h]
        for block, tensors in zip(blocks, kept or [], strict=False):
            block.k.copy_(tensors[0]), block.v.copy_(tensors[1])
        end = position + tokens.size(1)
        logits = model(tokens, torch.arange(position, end), input_pos_maxp1=end)
        return logits, (end, [(block.k.clone(), block.v.clone()) for block in blocks])

    return doctor.CausalLM(
        build=build, forward=lambda model, tokens: model(tokens), cached=cached, positions="rotary", tied=False
    )
