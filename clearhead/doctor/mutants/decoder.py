"""Bugs planted in the decoder-only host: head shapes, causal masks, positions, window, packing, cache."""

from clearhead.doctor.mutants import Mutant

SPLIT = "q = self.query(x).view(batch, length, config.heads, self.head_width).transpose(1, 2)"
MERGE = "return self.out(mixed.transpose(1, 2).reshape(batch, length, width))"
MASK = "scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"
WEIGHTS = "weights = scores.softmax(dim=-1) * mask.any(dim=-1, keepdim=True)"
KEYS = "k = k.repeat_interleave(groups, dim=1)"
FUSED = "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)"
SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_width)"
BLOCKS = "self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.layers))"
TIE = "            self.head.weight = self.embedding.weight"


def row(
    id: str, title: str, variant: str, healthy: str, broken: str, *causes: str, also: tuple[tuple[str, str], ...] = ()
) -> Mutant:
    return Mutant(id, title, "decoder", variant, healthy, broken, causes, also, held_out=id in HELD_OUT)


HELD_OUT = {"2", "6", "5b", "12", "61", "64", "x20", "9", "16", "22b", "31", "34", "44", "48", "51", "60b", "67", "8",
            "x03", "x06", "x09", "x12", "x15", "x18", "x21"}  # fmt: skip

MUTANTS = [
    row(
        "1", "heads split without a transpose", "rotary", SPLIT,
        "q = self.query(x).view(batch, config.heads, length, self.head_width)", "head-view",
    ),
    row(
        "2", "heads merged without a transpose", "rotary", MERGE,
        "return self.out(mixed.reshape(batch, length, width))", "head-view",
    ),
    row(
        "3", "heads split and merged without a transpose", "learned", MERGE,
        "return self.out(mixed.reshape(batch, length, width))", "head-view-both", "head-view",
        also=(
            (SPLIT, "q = self.query(x).reshape(batch, config.heads, length, self.head_width)"),
            (
                "k = key.view(batch, length, config.kv_heads, self.head_width).transpose(1, 2)",
                "k = key.reshape(batch, config.kv_heads, length, self.head_width)",
            ),
            (
                "v = value.view(batch, length, config.kv_heads, self.head_width).transpose(1, 2)",
                "v = value.reshape(batch, config.kv_heads, length, self.head_width)",
            ),
        ),
    ),
    row(
        "5", "softmax over the batch", "rotary", WEIGHTS,
        "weights = scores.softmax(dim=0) * mask.any(dim=-1, keepdim=True)", "softmax-axis",
    ),
    row(
        "5b", "softmax over the heads", "rotary", WEIGHTS,
        "weights = scores.softmax(dim=1) * mask.any(dim=-1, keepdim=True)", "softmax-axis",
    ),
    row(
        "6", "softmax over the queries", "rotary", WEIGHTS,
        "weights = scores.softmax(dim=-2) * mask.any(dim=-1, keepdim=True)", "softmax-axis",
    ),
    row(
        "8", "key heads tiled instead of repeated", "rotary", KEYS, "k = k.repeat(1, groups, 1, 1)",
        "grouped-heads-order",
    ),
    row(
        "9", "key heads repeated along the sequence", "rotary", KEYS,
        "k = k.repeat_interleave(groups, dim=2)[:, :, : k.size(2)].repeat(1, groups, 1, 1)", "grouped-heads-axis",
    ),
    row(
        "10", "keys and values swapped in the fused projection", "rotary",
        "key, value = self.key_value(x).chunk(2, dim=-1)", "value, key = self.key_value(x).chunk(2, dim=-1)",
        "qkv-order",
    ),
    row("12", "all heads read head 0", "rotary", KEYS, "k = k[:, :1].expand(-1, config.heads, -1, -1)", "heads-shared"),
    row(
        "13", "mask lets one future token through", "rotary", "allowed = distance >= 0", "allowed = distance >= -1",
        "mask-diagonal",
    ),
    row(
        "15", "mask with the wrong polarity in the fused kernel", "fused", FUSED,
        "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=~mask, dropout_p=dropout)", "mask-inverted",
    ),
    row(
        "16", "mask of zeros and ones added to the scores", "rotary", MASK, "scores = scores + mask.to(scores.dtype)",
        "mask-value",
    ),
    row(
        "17", "masked scores set to 1e-9 instead of -1e9", "rotary", MASK, "scores = scores.masked_fill(~mask, 1e-9)",
        "mask-value",
    ),
    row(
        "19", "mask multiplied in after the softmax", "rotary", WEIGHTS, "weights = scores.softmax(dim=-1) * mask",
        "mask-after-softmax", also=((MASK, "scores = scores + 0.0"),),
    ),
    row(
        "22", "mask lost while training", "rotary", MASK,
        "scores = scores if self.training else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)",
        "mask-one-path",
    ),
    row(
        "22b", "mask lost on the fused path", "two-paths", FUSED,
        "mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)", "mask-one-path",
    ),
    row(
        "23", "decoder with a bidirectional mask", "rotary", "allowed = distance >= 0",
        "allowed = distance >= -distance.size(-1)", "mask-missing",
    ),
    row(
        "26", "padding mask ignored", "rotary", "mask = mask & padding[:, None, None, :]",
        "mask = mask & padding.any()", "padding-ignored",
    ),
    row(
        "28", "a query with nothing to look at divides zero by zero", "rotary", MASK,
        "scores = scores.masked_fill(~mask, -math.inf)", "masked-row-nan",
    ),
    row(
        "31", "is_causal with more keys than queries", "fused", FUSED,
        "mixed = F.scaled_dot_product_attention(q, k, v, is_causal=q.size(2) > 1 or k.size(2) > 1, dropout_p=dropout)",
        "causal-flag-cached",
    ),
    row(
        "32", "cache keeps one token less than the window needs", "window",
        "keep = self.window - 1 if self.window else keys.size(2)",
        "keep = self.window - 2 if self.window else keys.size(2)", "window-edge",
    ),
    row(
        "32b", "window one token too wide", "window", "allowed = allowed & (distance < window)",
        "allowed = allowed & (distance <= window)", "window-edge",
    ),
    row(
        "33", "window never reaches the mask", "window", "mask = causal_mask(index, keys, config.window)",
        "mask = causal_mask(index, keys, None)", "window-ignored",
    ),
    row(
        "34", "packed documents see each other", "rotary",
        "mask = mask & (documents[:, None, :, None] == documents[:, None, None, :])",
        "mask = mask & (documents[:, None, :, None] >= documents[:, None, None, :])", "documents-visible",
    ),
    row(
        "36", "experts choose tokens", "experts",
        "chosen = F.one_hot(gates.argmax(dim=-1), gates.size(-1)).to(gates.dtype) * gates",
        "chosen = gates * (gates >= gates.flatten(0, 1).topk(max(1, gates[..., 0].numel() // gates.size(-1)), "
        "dim=0).values[-1])",
        "batch-coupled-routing",
    ),
    row(
        "37", "positions left out", "learned", "x = x + self.position(positions)",
        "x = x + self.position(positions) * 0.0", "positions-missing",
    ),
    row(
        "37b", "rotation left out", "rotary", "q, k = rotate(q, angles), rotate(k, angles)",
        "q, k = rotate(q, 0 * angles), rotate(k, 0 * angles)", "positions-missing",
    ),
    row(
        "40", "frequencies for neighbouring pairs, rotation of halves", "rotary",
        "return torch.cat([angles, angles], dim=-1)", "return angles.repeat_interleave(2, dim=-1)", "rotary-pairing",
    ),
    row(
        "43", "positions in bfloat16", "rotary", "angles = positions.float().unsqueeze(-1) * frequencies",
        "angles = positions.bfloat16().float().unsqueeze(-1) * frequencies", "position-precision",
    ),
    row(
        "44", "rotary table shorter than the context", "rotary",
        "angles = positions.float().unsqueeze(-1) * frequencies",
        "angles = positions.clamp(max=255).float().unsqueeze(-1) * frequencies", "position-table-short",
    ),
    row(
        "46", "cache offset grows twice", "rotary", "        self.length += tokens",
        "        self.length += 2 * tokens", "cache-offset",
    ),
    row(
        "47", "left padding with positions by index", "learned",
        "return (padding.long().cumsum(dim=-1) - 1).clamp(min=0)", "return index", "left-padding-positions",
    ),
    row(
        "48", "ALiBi slopes off for a head count that is no power of two", "alibi",
        "slopes += [2.0 ** (-4.0 * (2 * i + 1) / power) for i in range(heads - power)]",
        "slopes += [2.0 ** (-4.0 * (2 * i + 2) / power) for i in range(heads - power)]", "alibi-slopes",
    ),
    row(
        "51", "scores not divided by the square root of the head width", "rotary", SCORES,
        "scores = q @ k.transpose(-2, -1)", "scale-missing",
    ),
    row(
        "51b", "scores divided by the root of the model width", "rotary", SCORES,
        "scores = q @ k.transpose(-2, -1) / math.sqrt(self.config.width)", "scale-missing",
    ),
    row(
        "54", "embedding of unit variance tied to the head", "rotary", "nn.init.normal_(module.weight, std=0.02)",
        "nn.init.normal_(module.weight, std=1.0 if isinstance(module, nn.Embedding) else 0.02)", "init-scale",
    ),
    row(
        "55", "layers copied from one another", "rotary", BLOCKS,
        "first = Block(config, 0)\n        self.blocks = nn.ModuleList(copy.deepcopy(first) for _ in "
        "range(config.layers))",
        "identical-layers",
        also=(
            ("import math\n", "import copy\nimport math\n"),
            ("self.apply(self.initialise)", "self.norm.apply(self.initialise)"),
        ),
    ),
    row(
        "56", "one layer used over and over", "learned", BLOCKS,
        "self.blocks = nn.ModuleList([Block(config, 0)] * config.layers)", "shared-layers",
    ),
    row(
        "60", "tie lost: the head gets a copy", "rotary", TIE,
        "            self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())", "tie",
    ),
    row(
        "60b", "tie forced on an untied model", "untied", "        if config.tied:\n", "        if config.vocab:\n",
        "tie",
    ),
    row(
        "61", "tanh GELU for the exact one", "rotary", "F.gelu(self.up(x))", 'F.gelu(self.up(x), approximate="tanh")',
        "activation-variant",
    ),
    row(
        "64", "fused kernel drops out in evaluation", "fused",
        "dropout = self.config.dropout if self.training else 0.0", "dropout = self.config.dropout", "dropout-in-eval",
    ),
    row(
        "67", "every cache is the same cache", "rotary", "self.layers: dict[int, tuple[Tensor, Tensor]] = {}",
        "self.layers = SHARED", "cache-shared",
        also=(("class Cache:\n", "SHARED: dict[int, tuple[Tensor, Tensor]] = {}\n\n\nclass Cache:\n"),),
    ),
    row(
        "68", "beams not reordered", "rotary",
        "other.layers = {layer: (keys[rows], values[rows]) for layer, (keys, values) in self.layers.items()}",
        "other.layers = dict(self.layers)", "reorder-skipped",
    ),
    # beyond the catalogue
    row(
        "x01", "mean square taken over the sequence", "rotary", "x.pow(2).mean(-1, keepdim=True)",
        "x.pow(2).mean(1, keepdim=True)", "norm-axis",
    ),
    row(
        "x02", "rotation of the queries alone", "rotary", "q, k = rotate(q, angles), rotate(k, angles)",
        "q, k = rotate(q, angles), k", "rotary-pairing",
    ),
    row(
        "x03", "values rotated as well", "rotary", "q, k = rotate(q, angles), rotate(k, angles)",
        "q, k, v = rotate(q, angles), rotate(k, angles), rotate(v, angles)", "rotary-pairing",
    ),
    row(
        "x04", "cache forgets the offset of positions", "rotary", "offset = cache.length if cache is not None else 0",
        "offset = 0", "cache-offset",
    ),
    row(
        "x05", "dropout that ignores evaluation", "rotary",
        "weights = F.dropout(weights, self.config.dropout, self.training)",
        "weights = F.dropout(weights, self.config.dropout)", "dropout-in-eval",
    ),
    row(
        "x06", "layers in a plain list", "rotary", BLOCKS,
        "self.blocks = [Block(config, layer) for layer in range(config.layers)]", "unregistered",
    ),
    row(
        "x07", "values detached from the graph", "rotary", "v = v.repeat_interleave(groups, dim=1)",
        "v = v.detach().repeat_interleave(groups, dim=1)", "detached",
    ),
    row(
        "x08", "greedy search reads the first position", "rotary",
        "tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)",
        "tokens = torch.cat([tokens, logits[:, :1].argmax(dim=-1)], dim=1)", "generate-step",
    ),
    row(
        "x09", "ALiBi rewards distance", "alibi", "bias = -alibi_slopes(config.heads).view(1, -1, 1, 1) * distance",
        "bias = alibi_slopes(config.heads).view(1, -1, 1, 1) * distance", "alibi-slopes",
    ),
    row(
        "x10", "chunks of a cached pass see their own future", "rotary",
        "mask = causal_mask(index, keys, config.window)",
        "mask = causal_mask(index, keys, config.window) | (held > 0)", "chunk-mask",
    ),
    row(
        "x11", "something is remembered from the last call", "rotary", "        x = self.embedding(tokens)\n",
        "        x = self.embedding(tokens) + self.__dict__.get('last', 0.0)\n        self.__dict__['last'] = 0.1 * "
        "x.detach().mean()\n",
        "stale-state",
    ),
    row(
        "x12", "padding hides queries instead of keys", "rotary", "mask = mask & padding[:, None, None, :]",
        "mask = mask & padding[:, None, :, None]", "padding-ignored", "padding-axis",
    ),
    row(
        "x13", "scores divided by the head width", "rotary", SCORES,
        "scores = q @ k.transpose(-2, -1) / self.head_width", "scale-missing",
    ),
    row(
        "x14", "softmax without subtracting the maximum", "rotary", WEIGHTS,
        "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True) * mask.any(dim=-1, keepdim=True)",
        "softmax-overflow", also=((MASK, "scores = scores.masked_fill(~mask, -1e4)"),),
    ),
    row(
        "x15", "diagonal masked: a token cannot see itself", "rotary", "allowed = distance >= 0",
        "allowed = distance >= 1", "mask-diagonal",
    ),
    row(
        "x16", "mean over the batch taken out of the residual", "learned",
        "return x + self.dropout(self.feedforward(self.feedforward_norm(x)))",
        "return x + self.dropout(self.feedforward(self.feedforward_norm(x - x.mean(dim=0, keepdim=True))))",
        "norm-axis", "batch-coupled",
    ),
    row(
        "x17", "second block never called", "learned", "        for block in self.blocks:\n",
        "        for block in self.blocks[:1]:\n", "unused-parameters",
    ),
    row(
        "x18", "cached keys are never rotated", "rotary", "q, k = rotate(q, angles), rotate(k, angles)",
        "q, k = rotate(q, angles), rotate(k, angles) if cache is None else k", "cache-offset", "cache-rotation",
    ),
    row(
        "x19", "query of the last token shifted by one position", "rotary", "return index\n",
        "return index + (index == index.max()).long()\n", "position-length", "position-precision",
    ),
    row(
        "x20", "loses the tokens beyond 256", "rotary", "        mask = causal_mask(index, keys, config.window)",
        "        mask = causal_mask(index, keys, config.window) & (keys < 256)[:, None, None, :]", "length-limit",
        "position-table-short",
    ),
    row(
        "x21", "sliding window measured in the wrong direction", "window", "allowed = allowed & (distance < window)",
        "allowed = allowed & (distance < window + distance)", "window-ignored",
    ),
]
