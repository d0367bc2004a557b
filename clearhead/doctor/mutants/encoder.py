"""Bugs planted in the encoder host: axes, padding, positions, initialisation, evaluation."""

from functools import partial

from clearhead.doctor.mutants import planted

HELD_OUT = {"e1", "e37", "x31", "39", "58", "e26", "x33", "x36"}
row = partial(planted, "encoder", HELD_OUT)

POSITIONS = "x = self.dropout(x + self.table[: x.size(1)])"
MASK = "scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)"
WEIGHTS = "weights = torch.softmax(scores, dim=-1)"
ATTENDED = "attended = self.attention(x.transpose(0, 1), padding).transpose(0, 1)"
MERGE = "return self.out_proj(mixed.transpose(0, 1).reshape(length, batch, width))"

MUTANTS = [
    row(
        "4",
        "attention fed (B, S, D) where it wants (S, B, D)",
        "unpadded",
        ATTENDED,
        "attended = self.attention(x, padding)",
        "batch-sequence-swapped",
    ),
    row(
        "e1",
        "heads and sequence mixed by a view",
        "plain",
        "k = k.reshape(length, batch * self.heads, self.head_width).transpose(0, 1)",
        "k = k.reshape(batch * self.heads, length, self.head_width)",
        "head-view",
        "batch-sequence-swapped",
    ),
    row(
        "e2",
        "heads merged without a transpose",
        "plain",
        MERGE,
        "return self.out_proj(mixed.reshape(length, batch, width))",
        "head-view",
        "batch-sequence-swapped",
    ),
    row("e5", "softmax over the batch", "plain", WEIGHTS, "weights = torch.softmax(scores, dim=0)", "softmax-axis"),
    row("e6", "softmax over the queries", "plain", WEIGHTS, "weights = torch.softmax(scores, dim=-2)", "softmax-axis"),
    row(
        "e6b",
        "softmax over the queries, no padding to show it",
        "unpadded",
        WEIGHTS,
        "weights = torch.softmax(scores, dim=1)",
        "softmax-axis",
    ),
    row(
        "e19",
        "padding multiplied in after the softmax",
        "plain",
        MASK,
        "hidden = hidden.to(scores.dtype)",
        "mask-after-softmax",
        also=(
            (
                WEIGHTS,
                "weights = torch.softmax(scores, dim=-1)\n        weights = weights * (1 - hidden) if padding is "
                "not None else weights",
            ),
        ),
    ),
    row(
        "e26",
        "padding mask ignored",
        "plain",
        MASK,
        "scores = scores.masked_fill(hidden & False, torch.finfo(scores.dtype).min)",
        "padding-ignored",
    ),
    row(
        "e26b",
        "padding mask repeated in the wrong order",
        "plain",
        "hidden = ~padding.repeat_interleave(self.heads, dim=0).unsqueeze(1)",
        "hidden = ~padding.repeat(self.heads, 1).unsqueeze(1)",
        "mask-broadcast",
        "padding-ignored",
    ),
    row("e37", "positions left out", "plain", POSITIONS, "x = self.dropout(x)", "positions-missing"),
    row(
        "39",
        "positions indexed by the batch",
        "plain",
        POSITIONS,
        "x = self.dropout(x + self.table[: x.size(0)].unsqueeze(1))",
        "positions-axis",
    ),
    row(
        "53",
        "embedding scale rounded to bfloat16",
        "plain",
        "self.scale = math.sqrt(config.width)",
        "self.scale = float(torch.tensor(math.sqrt(config.width), dtype=torch.bfloat16))",
        "embedding-scale",
    ),
    row(
        "58",
        "embeddings zeroed by the initialisation",
        "plain",
        "nn.init.normal_(self.embedding.weight, std=config.width**-0.5)",
        "nn.init.normal_(self.embedding.weight, std=config.width // 64)",
        "zero-embedding",
    ),
    row(
        "65",
        "evaluation takes a shortcut",
        "plain",
        "        for layer in self.layers:\n            x = layer(x, padding)\n",
        "        for layer in self.layers:\n            x = layer(x, padding) if self.training else layer(0 * x, "
        "padding)\n",
        "eval-path",
    ),
    row(
        "e51",
        "scores not scaled",
        "plain",
        "scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(self.head_width)",
        "scores = torch.bmm(q, k.transpose(1, 2))",
        "scale-missing",
    ),
    row(
        "e55",
        "layers copied from one another",
        "plain",
        "self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])",
        "first = Layer(config)\n        self.layers = nn.ModuleList([__import__('copy').deepcopy(first) for _ in "
        "range(config.layers)])",
        "identical-layers",
    ),
    row(
        "e56",
        "one layer used over and over",
        "plain",
        "self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])",
        "self.layers = nn.ModuleList([Layer(config)] * config.layers)",
        "shared-layers",
    ),
    row(
        "e62",
        "positions added to detached embeddings",
        "plain",
        "x = self.embedding(tokens) * self.scale",
        "x = self.embedding(tokens).detach() * self.scale",
        "detached",
    ),
    row(
        "x31",
        "normalised over the sequence",
        "plain",
        "centred = x - x.mean(dim=-1, keepdim=True)",
        "centred = x - x.mean(dim=1, keepdim=True)",
        "norm-axis",
    ),
    row(
        "x32",
        "every token is dropped at the same places, also in evaluation",
        "plain",
        "weights = F.dropout(weights, self.dropout, self.training)",
        "weights = F.dropout(weights, self.dropout, True)",
        "dropout-in-eval",
    ),
    row(
        "x33",
        "the encoder looks only back",
        "plain",
        WEIGHTS,
        "weights = torch.softmax(scores + torch.full_like(scores, -1e9).triu(1), dim=-1)",
        "direction",
        "mask-inverted",
    ),
    row(
        "x34",
        "two tokens share each position",
        "plain",
        "position = torch.arange(length).unsqueeze(1)",
        "position = torch.arange(length).unsqueeze(1) // 2",
        "positions-collide",
    ),
    row(
        "x35",
        "last token cut off from the keys",
        "plain",
        "q, k, v = self.in_proj(x).chunk(3, dim=-1)",
        "q, k, v = self.in_proj(torch.cat([x[:-1], x[:1]])).chunk(3, dim=-1)",
        "reach-lost",
    ),
    row(
        "x36",
        "table of positions not saved and random",
        "plain",
        "table = torch.zeros(length, width)\n",
        "table = torch.randn(length, width)\n    return table\n",
        "unregistered",
    ),
]
