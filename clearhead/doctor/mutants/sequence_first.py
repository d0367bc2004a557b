"""Bugs planted in the sequence-first encoder-decoder, all written after the probes stood."""

from clearhead.doctor.mutants import Mutant

SUBSEQUENT = 'torch.triu(torch.full((size, size), float("-inf"), dtype=dtype), diagonal=1)'
HIDDEN = 'masked_fill(real.logical_not(), float("-inf"))'
HEADS = "x.contiguous().view(x.size(0), x.size(1) * self.nhead, self.head_dim).transpose(0, 1)"
ZEROS = """    empty = torch.isneginf(scores).all(dim=-1, keepdim=True)
    return F.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)"""
CROSS = "attended, weights = self.cross_attn(tgt, memory, memory_mask)"
ENCODED = "x = self.pos_encoder(self.src_embed(src) * math.sqrt(self.d_model))"
ZERO_GRAD = "    optimizer.zero_grad()\n    total = 0.0\n    for src, tgt in micro_batches:\n"
ENCODER_ATTENTION = "self.self_attn = MultiHeadAttention(d_model, nhead, dropout)\n        self.ffn"


def row(
    id: str, title: str, healthy: str, broken: str, *causes: str,
    variant: str = "plain", also: tuple[tuple[str, str], ...] = (),
) -> Mutant:  # fmt: skip
    return Mutant(id, title, "sequence_first", variant, healthy, broken, causes, also, held_out=True)


# fmt: off
MUTANTS = [
    # masks
    row("sf01", "one token of the future is left open",
        SUBSEQUENT, SUBSEQUENT.replace("diagonal=1", "diagonal=2"), "mask-diagonal"),
    row("sf02", "a token does not see itself",
        SUBSEQUENT, SUBSEQUENT.replace("diagonal=1", "diagonal=0"), "mask-diagonal"),
    row("sf03", "the lower triangle is hidden, not the upper",
        SUBSEQUENT, 'torch.tril(torch.full((size, size), float("-inf"), dtype=dtype), diagonal=-1)', "mask-inverted"),
    row("sf04", "a triangle of ones is added as if it were a float mask",
        SUBSEQUENT, "torch.triu(torch.ones(size, size, dtype=dtype), diagonal=1)", "mask-value"),
    row("sf05", "real tokens are filled with -inf, padding is not",
        HIDDEN, 'masked_fill(real, float("-inf"))', "mask-inverted"),
    row("sf06", "padding is filled with -1e-9",
        HIDDEN, "masked_fill(real.logical_not(), -1e-9)", "mask-value", "padding-ignored"),
    row("sf07", "with padding there is no causal mask",
        "return first if second is None else first + second", "return first if second is None else second",
        "mask-replaced"),
    row("sf08", "cross-attention is called without its mask",
        CROSS, "attended, weights = self.cross_attn(tgt, memory)", "cross-padding-missing"),
    row("sf09", "encoder layers are called without the mask",
        "            x = layer(x, mask)\n", "            x = layer(x, None)\n", "encoder-padding-missing"),
    row("sf10", "a sentence of padding only gives 0/0",
        ZEROS, "    return F.softmax(scores, dim=-1)", "masked-row-nan"),
    row("sf11", "the encoder is given the decoder's causal mask",
        "            x = layer(x, mask)\n",
        "            x = layer(x, merge_masks(square_subsequent_mask(src.size(0), x.dtype), mask))\n",
        "direction", "source-causal"),
    # shapes
    row("sf12", "heads split batch first",
        HEADS, "x.contiguous().view(x.size(1) * self.nhead, x.size(0), self.head_dim)", "head-view"),
    row("sf13", "heads merged without turning the axes back",
        "out = out.transpose(0, 1).contiguous().view(tgt_len, bsz, d_model)", "out = out.view(tgt_len, bsz, d_model)",
        "head-view"),
    row("sf14", "keys and values of the fused matrix change places",
        "k, v = F.linear(memory, w_kv, b_kv).chunk(2, dim=-1)", "v, k = F.linear(memory, w_kv, b_kv).chunk(2, dim=-1)",
        "qkv-order", variant="reference"),
    # positions and scale
    row("sf15", "the table of positions is read as if the batch came first",
        "x + self.pe[start:stop]", "x + self.pe[: x.size(1), 0]", "positions-axis"),
    row("sf16", "the source has no positions",
        ENCODED, "x = self.src_embed(src) * math.sqrt(self.d_model)", "positions-missing"),
    row("sf17", "scores are scaled by the width of the model",
        "q = q * self.head_dim**-0.5", "q = q * d_model**-0.5", "scale-missing"),
    row("sf18", "the target's embeddings are not scaled",
        "self.tgt_embed(tgt) * math.sqrt(self.d_model), start=past", "self.tgt_embed(tgt), start=past",
        "embedding-scale", variant="reference"),
    row("sf19", "the table of positions is no buffer",
        'self.register_buffer("pe", pe, persistent=False)', "self.pe = pe", "plain-tensor"),
    # sub-layers
    row("sf20", "the encoder's feed-forward replaces what it reads",
        "self.norm2(src + self.dropout2(self.ffn(src)))", "self.norm2(self.dropout2(self.ffn(src)))",
        "residual-missing"),
    row("sf21", "no activation in the feed-forward",
        "nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout)", "nn.Linear(d_model, d_ff), nn.Dropout(dropout)",
        "activation-missing"),
    row("sf22", "cross-attention replaces what the decoder has so far",
        "tgt = self.norm2(tgt + self.dropout2(attended))", "tgt = self.norm2(self.dropout2(attended))",
        "residual-missing"),
    # dropout and parameters
    row("sf23", "dropout of the weights acts in evaluation",
        "F.dropout(weights, p=self.dropout, training=self.training)", "F.dropout(weights, p=self.dropout)",
        "dropout-in-eval"),
    row("sf24", "the encoder's attention keeps the default rate",
        ENCODER_ATTENTION, ENCODER_ATTENTION.replace(", dropout)", ")"), "dropout-rate",
        also=(("def __init__(self, d_model: int, nhead: int, dropout: float) -> None:\n        super().__init__()\n"
               "        self.nhead",
               "def __init__(self, d_model: int, nhead: int, dropout: float = 0.1) -> None:\n"
               "        super().__init__()\n        self.nhead"),)),
    row("sf25", "every decoder layer is the same module",
        "nn.ModuleList([DecoderLayer(d_model, nhead, dropout) for _ in range(num_layers)])",
        "nn.ModuleList([DecoderLayer(d_model, nhead, dropout)] * num_layers)", "shared-layers"),
    row("sf26", "encoder layers are deep copies of one",
        "nn.ModuleList([EncoderLayer(d_model, nhead, dropout) for _ in range(num_layers)])",
        "clones(EncoderLayer(d_model, nhead, dropout), num_layers)", "identical-layers",
        also=(("import math\n", "import copy\nimport math\n"),
              ("class State(NamedTuple):",
               "def clones(module: nn.Module, count: int) -> nn.ModuleList:\n"
               "    return nn.ModuleList([copy.deepcopy(module) for _ in range(count)])\n\n\n"
               "class State(NamedTuple):"))),
    row("sf27", "the head is a copy of the embedding",
        "self.generator.weight = self.tgt_embed.weight",
        "self.generator.weight = nn.Parameter(self.tgt_embed.weight.clone())", "tie"),
    row("sf28", "the embeddings are tied by their data",
        "self.tgt_embed.weight = self.src_embed.weight", "self.tgt_embed.weight.data = self.src_embed.weight.data",
        "tie-by-data", "tie"),
    row("sf29", "the encoder's output is detached",
        "        return State(x, mask)\n", "        return State(x.detach(), mask)\n", "detached"),
    # cache and generation
    row("sf30", "positions begin anew with every step",
        "math.sqrt(self.d_model), start=past)", "math.sqrt(self.d_model))", "cache-offset"),
    row("sf31", "the first rows of the mask are taken, not the last",
        "square_subsequent_mask(past + tgt.size(0), x.dtype)[past:]",
        "square_subsequent_mask(past + tgt.size(0), x.dtype)[: tgt.size(0)]", "causal-flag-cached"),
    row("sf32", "only the newest inputs are remembered",
        "seen.append(inputs)", "seen.append(x)", "cache-contents", "cache-offset"),
    row("sf33", "beams keep the memory of the row they had",
        "return State(self.memory[:, index], mask,", "return State(self.memory, mask,", "reorder-skipped"),
    row("sf34", "greedy search feeds all tokens to a state that knows them",
        "logits, _, state = self.decode(step, state)", "logits, _, state = self.decode(ys, state)",
        "generate-step", "cache-contents"),
    row("sf35", "greedy search encodes the source without its mask",
        "state = self.encode(src, src_real)\n", "state = self.encode(src)\n", "generate-padding"),
    # loss and training
    row("sf36", "padding is predicted like any other token",
        "ignore_index=PAD, ", "", "ignored-token", "mean-over-padding"),
    row("sf37", "labels are flattened batch first",
        "tgt_out.flatten()", "tgt_out.t().flatten()", "loss-mispaired"),
    row("sf38", "the decoder reads what it should predict",
        "tgt_in, tgt_out = tgt[:-1], tgt[1:]", "tgt_in, tgt_out = tgt[1:], tgt[1:]",
        "labels-unshifted", "target-leak"),
    row("sf39", "the loss does not tell the model where the source is padded",
        "model(src, tgt_in, (src != PAD).t(), (tgt_in != PAD).t())", "model(src, tgt_in, None, (tgt_in != PAD).t())",
        "loss-padding"),
    row("sf40", "gradients are cleared before every micro-batch",
        ZERO_GRAD, "    total = 0.0\n    for src, tgt in micro_batches:\n        optimizer.zero_grad()\n",
        "accumulation-lost"),
    row("sf41", "the exponent of the warm-up is wrong",
        "step * WARMUP**-1.5", "step * WARMUP**-0.5", "schedule-peak"),
]
# fmt: on
