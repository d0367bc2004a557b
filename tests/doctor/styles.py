"""Small healthy models in the styles that people write: what inference has to cope with, in our own words.

They share one block and nothing else: configuration, arguments, masks, caches and outputs differ as they do outside.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and a feed-forward part; `hidden` (True = hidden) broadcasts to (B, H, S, T)."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, cross: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.norm3 = nn.LayerNorm(width) if cross else None
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)
        self.kept: tuple[Tensor, Tensor] | None = None

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if hidden is not None:
            scores = scores.masked_fill(hidden, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, hidden: Tensor | None, past: Any = None, memory: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(part(y)) for part in (self.query, self.key, self.value))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        self.kept = (k, v)
        x = x + self.dropout(self.attend(q, k, v, hidden))
        if memory is not None and self.norm3 is not None:
            q, (k, v) = self.split(self.query(self.norm3(x))), (self.split(memory), self.split(memory))
            x = x + self.attend(q, k, v, None)
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


def future(tokens: Tensor) -> Tensor:
    return torch.ones(tokens.size(1), tokens.size(1), dtype=torch.bool).triu(1)


class Table(nn.Module):
    """Embeddings of tokens and positions."""

    def __init__(self, vocab: int, width: int, length: int, padding_idx: int | None = None) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width, padding_idx), nn.Embedding(length, width)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        return self.tokens(tokens) + self.places(torch.arange(start, start + tokens.size(1)))


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    bias: bool = True


class GPT(nn.Module):
    """A dataclass as configuration, (logits, loss) out, only the last logits without targets, views of slices."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.table = Table(config.vocab_size, config.n_embd, config.block_size)
        self.blocks = nn.ModuleList(Block(config.n_embd, config.n_head, config.dropout) for _ in range(config.n_layer))
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = self.table(idx)
        for block in self.blocks:
            x = block(x, future(idx))
        if targets is None:
            return self.head(x[:, [-1]]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def generate(self, idx: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None) -> Tensor:
        for _ in range(max_new_tokens):
            logits = self(idx)[0][:, -1] / temperature
            if top_k is not None:
                logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -math.inf)
            idx = torch.cat([idx, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return idx

    def configure_optimizers(self, weight_decay: float, learning_rate: float, betas: Any, device_type: str) -> Any:
        matrices = [p for p in self.parameters() if p.dim() >= 2]
        vectors = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.SGD(groups, lr=learning_rate)


class Sampler(GPT):
    """Its generate() can only draw."""

    def generate(self, idx: Tensor, max_new_tokens: int) -> Tensor:  # type: ignore[override]
        return super().generate(idx, max_new_tokens)


class DictModel(nn.Module):
    """A dictionary as configuration, and a cache that the model keeps inside."""

    def __init__(self, cfg: dict[str, Any]) -> None:
        super().__init__()
        self.table = Table(cfg["vocab_size"], cfg["emb_dim"], cfg["context_length"])
        sizes = cfg["emb_dim"], cfg["n_heads"], cfg["drop_rate"]
        self.blocks = nn.ModuleList(Block(*sizes) for _ in range(cfg["n_layers"]))
        self.head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=cfg["qkv_bias"])
        self.past: list[Any] = []

    def reset_kv_cache(self) -> None:
        self.past = []

    def forward(self, in_idx: Tensor, use_cache: bool = False) -> Tensor:
        start = self.past[0][0].size(2) if use_cache and self.past else 0
        x, kept = self.table(in_idx, start), []
        rows, columns = torch.arange(start, start + in_idx.size(1))[:, None], torch.arange(start + in_idx.size(1))
        for number, block in enumerate(self.blocks):
            x = block(x, columns > rows, self.past[number] if start else None)
            kept.append(block.kept)
        if use_cache:
            self.past = kept
        return self.head(x)


class NamespaceModel(nn.Module):
    """Attributes as configuration, a cache that goes in and comes out, a dictionary as output."""

    def __init__(self, args: Any) -> None:
        super().__init__()
        self.table = Table(args.vocab_size, args.dim, args.max_seq_len)
        self.blocks = nn.ModuleList(Block(args.dim, args.n_heads) for _ in range(args.n_layers))
        self.head = nn.Linear(args.dim, args.vocab_size)

    def forward(self, tokens: Tensor, past_key_values: Any = None) -> dict[str, Any]:
        start = past_key_values[0][0].size(2) if past_key_values else 0
        x, kept = self.table(tokens, start), []
        rows, columns = torch.arange(start, start + tokens.size(1))[:, None], torch.arange(start + tokens.size(1))
        for number, block in enumerate(self.blocks):
            x = block(x, columns > rows, past_key_values[number] if past_key_values else None)
            kept.append(block.kept)
        return {"logits": self.head(x), "past_key_values": kept}


class Tagger(nn.Module):
    """An encoder with an optional mask, 1 at real tokens, as integers (B, S)."""

    def __init__(self, vocab_size: int, hidden_size: int = 256, num_attention_heads: int = 4, num_layers: int = 4,
                 ) -> None:  # fmt: skip
        super().__init__()
        self.table = Table(vocab_size, hidden_size, 640)
        self.blocks = nn.ModuleList(Block(hidden_size, num_attention_heads) for _ in range(num_layers))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.table(input_ids)
        for block in self.blocks:
            x = block(x, None if attention_mask is None else (attention_mask == 0)[:, None, None, :])
        return x


class Translator(nn.Module):
    """Masks made from the ids of padding, outputs flattened to (B * S, V)."""

    def __init__(self, n_src_vocab: int, n_trg_vocab: int, src_pad_idx: int, trg_pad_idx: int, d_model: int = 512,
                 n_layers: int = 6, n_head: int = 8, n_position: int = 200) -> None:  # fmt: skip
        super().__init__()
        self.pads = src_pad_idx, trg_pad_idx
        self.source, self.target = (Table(v, d_model, n_position) for v in (n_src_vocab, n_trg_vocab))
        self.encoder = nn.ModuleList(Block(d_model, n_head) for _ in range(n_layers))
        self.decoder = nn.ModuleList(Block(d_model, n_head, cross=True) for _ in range(n_layers))
        self.head = nn.Linear(d_model, n_trg_vocab)

    def forward(self, src_seq: Tensor, trg_seq: Tensor) -> Tensor:
        unseen, x, y = (src_seq == self.pads[0])[:, None, None, :], self.source(src_seq), self.target(trg_seq)
        for block in self.encoder:
            x = block(x, unseen)
        # the mean of the source stands for cross-attention: padding must not count
        x = x.masked_fill(unseen[:, 0, 0, :, None], 0.0).sum(1, keepdim=True)
        x = x / (~unseen).sum(-1)[:, :, 0, None].clamp(min=1)
        for block in self.decoder:
            y = block(y, future(trg_seq) | (trg_seq == self.pads[1])[:, None, None, :], memory=x)
        logits = self.head(y)
        return logits.view(-1, logits.size(-1))


class FixedPadding(Translator):
    """Whatever ids it is given for its masks, its tables keep the row of token 1 from learning."""

    def __init__(self, n_src_vocab: int, n_trg_vocab: int, src_pad_idx: int, trg_pad_idx: int, d_model: int = 512,
                 n_layers: int = 6, n_head: int = 8) -> None:  # fmt: skip
        super().__init__(n_src_vocab, n_trg_vocab, src_pad_idx, trg_pad_idx, d_model, n_layers, n_head)
        for table in (self.source, self.target):
            table.tokens = nn.Embedding(table.tokens.num_embeddings, d_model, padding_idx=1)


class Core(nn.Module):
    """Parts come from outside, masks are required, and the generator is applied outside of forward."""

    def __init__(self, encoder: nn.ModuleList, decoder: nn.ModuleList, src_embed: nn.Module, tgt_embed: nn.Module,
                 generator: nn.Module) -> None:  # fmt: skip
        super().__init__()
        self.encoder, self.decoder, self.src_embed, self.tgt_embed = encoder, decoder, src_embed, tgt_embed
        self.generator = generator

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        x, y = self.src_embed(src), self.tgt_embed(tgt)
        for block in self.encoder:
            x = block(x, (src_mask == 0)[:, None])
        x = (x * src_mask.transpose(1, 2)).sum(1, keepdim=True) / src_mask.sum(-1, keepdim=True).clamp(min=1)
        for block in self.decoder:
            y = block(y, (tgt_mask == 0)[:, None], memory=x)
        return y


def make_model(src_vocab: int, tgt_vocab: int, N: int = 6, d_model: int = 512, h: int = 8) -> nn.Module:
    source, target = (Table(vocab, d_model, 640) for vocab in (src_vocab, tgt_vocab))
    head = nn.Sequential(nn.Linear(d_model, tgt_vocab), nn.LogSoftmax(dim=-1))
    encoder = nn.ModuleList(Block(d_model, h) for _ in range(N))
    return Core(encoder, nn.ModuleList(Block(d_model, h, cross=True) for _ in range(N)), source, target, head)


class TorchTranslator(nn.Module):
    """PyTorch's own Transformer, the sequence first, all of its masks required."""

    def __init__(self, num_layers: int, emb_size: int, nhead: int, src_vocab_size: int, tgt_vocab_size: int,
                 dim_feedforward: int = 512, dropout: float = 0.1) -> None:  # fmt: skip
        super().__init__()
        self.transformer = nn.Transformer(emb_size, nhead, num_layers, num_layers, dim_feedforward, dropout)
        self.source, self.target = (nn.Embedding(vocab, emb_size) for vocab in (src_vocab_size, tgt_vocab_size))
        self.places, self.generator = nn.Parameter(torch.randn(640, 1, emb_size)), nn.Linear(emb_size, tgt_vocab_size)

    def forward(self, src: Tensor, trg: Tensor, src_mask: Tensor, tgt_mask: Tensor, src_padding_mask: Tensor,
                tgt_padding_mask: Tensor, memory_key_padding_mask: Tensor) -> Tensor:  # fmt: skip
        x, y = self.source(src) + self.places[: src.size(0)], self.target(trg) + self.places[: trg.size(0)]
        out = self.transformer(x, y, src_mask, tgt_mask, None, src_padding_mask, tgt_padding_mask,
                               memory_key_padding_mask)  # fmt: skip
        return self.generator(out)
