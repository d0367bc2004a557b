"""Bugs planted in the encoder-decoder host: additive masks, cross-attention, state of decoding."""

from clearhead.doctor.mutants import Mutant


def row(
    id: str, title: str, variant: str, healthy: str, broken: str, *causes: str, also: tuple[tuple[str, str], ...] = ()
) -> Mutant:
    return Mutant(id, title, "seq2seq", variant, healthy, broken, causes, also, held_out=id in HELD_OUT)


HELD_OUT = {"s2", "27", "83", "s68", "x43", "x46", "x49"}

HIDDEN = "hidden = torch.ones(target.size(1), offset + target.size(1), dtype=torch.bool).triu(1 + offset)"
MASK = "mask = hide(hidden, x.dtype)"
ADD = "scores = torch.maximum(scores + mask, torch.tensor(torch.finfo(scores.dtype).min, dtype=scores.dtype))"
SPLIT = "return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)"
MERGE = "return x.transpose(1, 2).reshape(batch, length, heads * head_width)"
SOURCE_MASK = "source_mask = hide(~source_padding[:, None, None, :], x.dtype) if source_padding is not None else None"

MUTANTS = [
    row(
        "s1",
        "heads split without a transpose",
        "plain",
        SPLIT,
        "return x.view(batch, self.heads, length, width // self.heads)",
        "head-view",
        "head-view-both",
    ),
    row(
        "s2",
        "heads merged without a transpose",
        "plain",
        MERGE,
        "return x.reshape(batch, length, heads * head_width)",
        "head-view",
    ),
    row(
        "s3",
        "heads split and merged without a transpose",
        "plain",
        SPLIT,
        "return x.view(batch, self.heads, length, width // self.heads)",
        "head-view-both",
        "head-view",
        also=((MERGE, "return x.reshape(batch, length, heads * head_width)"),),
    ),
    row(
        "s6",
        "softmax over the queries",
        "plain",
        "F.softmax(scores, dim=-1)",
        "F.softmax(scores, dim=-2)",
        "softmax-axis",
    ),
    row(
        "s13",
        "decoder sees one future token",
        "plain",
        HIDDEN,
        HIDDEN.replace("triu(1 +", "triu(2 +"),
        "mask-diagonal",
    ),
    row(
        "s16",
        "the boolean mask itself is added to the scores",
        "plain",
        MASK,
        "mask = -hidden.to(x.dtype)",
        "mask-value",
    ),
    row(
        "21",
        "additive mask multiplied by a lower triangle",
        "plain",
        MASK,
        "mask = hide(hidden, x.dtype) * torch.ones(hidden.shape[-2:], dtype=x.dtype).tril(offset)",
        "mask-missing",
    ),
    row("s23", "decoder without its mask", "plain", MASK, "mask = hide(hidden & False, x.dtype)", "mask-missing"),
    row(
        "27",
        "cross-attention ignores the source padding",
        "plain",
        SOURCE_MASK,
        "source_mask = None",
        "cross-padding-missing",
    ),
    row(
        "27b",
        "encoder ignores the source padding",
        "plain",
        "mask = hide(~padding[:, None, None, :], x.dtype) if padding is not None else None",
        "mask = None",
        "padding-ignored",
        "encoder-padding-missing",
    ),
    row(
        "29",
        "two most negative numbers add up to minus infinity",
        "plain",
        MASK,
        "mask = hide(hidden, x.dtype) + (hide(~target_padding[:, None, None, :], x.dtype) if target_padding is not "
        "None else 0)",
        "mask-overflow",
        "masked-row-nan",
        also=((ADD, "scores = scores + mask"),),
    ),
    row(
        "83",
        "a constant too large for float16",
        "plain",
        "return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)",
        "return (hidden.to(torch.float32) * -1e9).to(dtype)",
        "mask-overflow",
        "masked-row-nan",
        also=((ADD, "scores = scores + mask"),),
    ),
    row(
        "s37",
        "positions left out",
        "plain",
        "return self.dropout(self.embedding(tokens) + self.position(positions))",
        "return self.dropout(self.embedding(tokens) + self.position(0 * positions))",
        "positions-missing",
    ),
    row(
        "s46",
        "decoding always starts at position 0",
        "plain",
        "x = self.embed(target, offset)",
        "x = self.embed(target)",
        "cache-offset",
    ),
    row(
        "s51",
        "scores not scaled",
        "plain",
        "q = self.split(self.query(x)) / math.sqrt(x.size(-1) // self.heads)",
        "q = self.split(self.query(x))",
        "scale-missing",
    ),
    row(
        "s54",
        "embedding of unit variance tied to the head",
        "plain",
        "nn.init.normal_(self.embedding.weight, std=0.02)",
        "nn.init.normal_(self.embedding.weight)",
        "init-scale",
    ),
    row(
        "s60",
        "tie lost: the head gets a copy",
        "plain",
        "            self.head.weight = self.embedding.weight",
        "            self.head.weight.data.copy_(self.embedding.weight)",
        "tie",
    ),
    row(
        "62",
        "the encoder's output is detached",
        "plain",
        "memory = self.encode(source, source_padding)",
        "memory = self.encode(source, source_padding).detach()",
        "detached",
    ),
    row(
        "62b",
        "keys read through .data",
        "plain",
        "scores = torch.matmul(q, keys.transpose(-1, -2))",
        "scores = torch.matmul(q, keys.data.transpose(-1, -2))",
        "detached",
    ),
    row(
        "s68",
        "reorder returns the state as it was",
        "plain",
        "return {name: tensor[rows] for name, tensor in state.items()}",
        "return dict(state)",
        "reorder-skipped",
    ),
    row(
        "x41",
        "cross-attention reads the target",
        "plain",
        "memory_keys, memory_values = self.recall(state, memory)",
        "memory_keys, memory_values = keys, values",
        "source-unused",
        also=(
            (
                "x = x + self.dropout(cross(self.norms[1](x), memory_keys, memory_values, source_mask))",
                "x = x + self.dropout(cross(self.norms[1](x), memory_keys, memory_values, mask))",
            ),
        ),
    ),
    row(
        "x42",
        "cross-attention sees one source for all",
        "plain",
        "return self.encoder_norm(x)",
        "return self.encoder_norm(x)[:1].expand_as(x)",
        "batch-coupled",
        "positions-axis",
    ),
    row(
        "x43",
        "reorder forgets the cross-attention",
        "plain",
        "return {name: tensor[rows] for name, tensor in state.items()}",
        'return {name: tensor if "memory" in name else tensor[rows] for name, tensor in state.items()}',
        "reorder-skipped",
    ),
    row(
        "x44",
        "values of the cache overwritten",
        "plain",
        'values = torch.cat([state[f"values{self.number}"], values], dim=2)',
        'values = torch.cat([values[:, :, :1].expand_as(state[f"values{self.number}"]), values], dim=2)',
        "cache-contents",
    ),
    row(
        "x45",
        "decoder mask one step late in the cache",
        "plain",
        HIDDEN,
        HIDDEN.replace("triu(1 + offset)", "triu(1)"),
        "chunk-mask",
        "causal-flag-cached",
    ),
    row(
        "x46",
        "dropout of the embedding never switched off",
        "plain",
        "return self.dropout(self.embedding(tokens) + self.position(positions))",
        "return F.dropout(self.embedding(tokens) + self.position(positions), 0.1)",
        "dropout-in-eval",
    ),
    row(
        "x47",
        "the encoder is causal",
        "plain",
        "        x = self.embed(source)\n",
        "        x = self.embed(source).cumsum(dim=1)\n        padding = None if padding is None else padding | True\n",
        "padding-ignored",
        "encoder-padding-missing",
        "direction",
    ),
    row(
        "x48",
        "generation never feeds its own tokens back",
        "plain",
        "logits = self.decode(memory, tokens[:, -1:], state=state)",
        "logits = self.decode(memory, start[:, -1:], state=state)",
        "generate-step",
    ),
    row(
        "x49",
        "target padding masks the source",
        "plain",
        "hidden = hidden | ~target_padding[:, None, None, :]",
        "hidden = hidden | ~target_padding[:, None, :, None]",
        "padding-ignored",
        "padding-axis",
    ),
]
