"""Bugs planted in the translator that finds padding by its id, all written after the probes stood."""

from clearhead.doctor.mutants import Mutant

ZEROED = "    nn.init.zeros_(table.weight[pad])\n"
TOO_LONG = """        if int(index.max()) > self.max_positions:
            raise ValueError(f"{int(index.max())} tokens in a row, and positions for {self.max_positions}")
"""
TABLE = "        self.positions = embedding(pad + 1 + max_positions, dim, pad)\n"
PLACED = "        positions = index * real + self.pad\n"
SPLIT = "x.unflatten(-1, (self.heads, -1)).permute(0, 2, 1, 3)"
NOTHING = "        allowed = allowed | ~allowed.any(dim=-1, keepdim=True)\n"
SOURCE = "allowed = source.ne(SOURCE_PAD)[:, None, None, :]"
CAUSAL = "causal = torch.ones(length, total, dtype=torch.bool).tril(diagonal=total - length)"
STREAM = "x = x + self.dropout(self.self_attn(y, keys, values, allowed))"
ENCODED = "        encoded = self.encode(source)\n        return"
REORDERED = "{name: tensor.index_select(0, rows) for name, tensor in layer.items()}"
LOSSES = "losses = -(1 - self.smoothing) * right - self.smoothing / (logits.size(-1) - 1) * wrong"
SUM = "return losses.masked_fill(labels.eq(self.ignore), 0.0).sum()"
DIVIDE = """        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        for gradient in gradients:
            gradient.div_(words)
"""
CLIP = "        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)\n"


def row(
    id: str, title: str, healthy: str, broken: str, *causes: str,
    variant: str = "plain", also: tuple[tuple[str, str], ...] = (),
) -> Mutant:  # fmt: skip
    return Mutant(id, title, "by_id", variant, healthy, broken, causes, also, held_out=True)


# fmt: off
MUTANTS = [
    # masks
    row("id01", "the source's padding is looked for under the target's id",
        SOURCE, SOURCE.replace("SOURCE", "TARGET"), "encoder-padding-missing", "cross-padding-missing",
        "padding-ignored"),
    row("id02", "the source's mask is True at padding",
        SOURCE, SOURCE.replace(".ne(", ".eq("), "mask-inverted"),
    row("id03", "the kernel is given what is hidden",
        "attn_mask=allowed, ", "attn_mask=~allowed, ", "mask-inverted"),
    row("id04", "causal or real is enough",
        "allowed = causal & real[:, None, None, :]", "allowed = causal | real[:, None, None, :]",
        "mask-missing", "mask-replaced"),
    row("id05", "cross-attention may look at everything",
        'encoded["memory"], encoded["allowed"], layer_state',
        'encoded["memory"], torch.ones_like(encoded["allowed"]), layer_state', "cross-padding-missing"),
    row("id06", "the padding mask of the source hides queries",
        SOURCE, SOURCE.replace("[:, None, None, :]", "[:, None, :, None]"),
        "padding-axis", "encoder-padding-missing",
        also=(('"allowed": allowed}', '"allowed": allowed.transpose(2, 3)}'),)),
    row("id07", "the encoder is causal",
        SOURCE, f"{SOURCE} & torch.ones(source.size(1), source.size(1), dtype=torch.bool).tril()",
        "direction", "source-causal",
        also=(('"allowed": allowed}', '"allowed": source.ne(SOURCE_PAD)[:, None, None, :]}'),)),
    row("id08", "a mask made of 0 and 1 is added by the kernel",
        "attn_mask=allowed, ", "attn_mask=allowed.to(x.dtype), ", "mask-value"),
    # shapes
    row("id09", "heads split by a view", SPLIT, "x.reshape(x.size(0), self.heads, x.size(1), -1)", "head-view"),
    row("id10", "heads merged by a reshape",
        "out.permute(0, 2, 1, 3).flatten(2)", "out.reshape(x.shape)", "head-view"),
    row("id11", "heads split and merged by views",
        SPLIT, "x.reshape(x.size(0), self.heads, x.size(1), -1)", "head-view-both",
        also=(("out.permute(0, 2, 1, 3).flatten(2)", "out.reshape(x.shape)"),)),
    # positions and scale
    row("id12", "positions begin at one and meet the padding row",
        PLACED, "        positions = index * real\n", "padding-row-read"),
    row("id13", "a row that is too long repeats its last position",
        TOO_LONG, "        index = index.clamp(max=self.max_positions)\n", "position-table-short", "position-reused",
        "positions-collide", "length-limit"),
    row("id14", "positions are left out",
        "self.tokens(tokens) + self.positions(positions)", "self.tokens(tokens)",
        "positions-missing", "unused-parameters"),
    row("id15", "positions are counted down from the end of the row",
        "index = real.long().cumsum(dim=1)", "index = real.long().flip(1).cumsum(dim=1).flip(1)", "position-length"),
    row("id16", "the kernel's scale is set to one",
        "attn_mask=allowed, ", "attn_mask=allowed, scale=1.0, ", "scale-missing"),
    row("id17", "tokens of other rows count as read",
        'state["real"].sum(dim=1, keepdim=True)', 'state["real"].sum()', "cache-offset", "batch-coupled"),
    # sub-layers
    row("id18", "the residual starts from the normalised input",
        STREAM, STREAM.replace("x = x +", "x = y +"), "residual-missing"),
    row("id19", "the feed-forward has no residual",
        "return x + self.dropout(self.fc2(self.dropout(y)))", "return self.dropout(self.fc2(self.dropout(y)))",
        "residual-missing"),
    row("id20", "no activation between the two maps",
        "y = F.gelu(self.fc1(self.ffn_norm(x)))", "y = self.fc1(self.ffn_norm(x))", "activation-missing"),
    row("id21", "the approximate GELU", "F.gelu(self.fc1(self.ffn_norm(x)))",
        'F.gelu(self.fc1(self.ffn_norm(x)), approximate="tanh")', "activation-variant", variant="reference"),
    row("id22", "the decoder's norm serves the encoder too",
        '"memory": self.encoder_norm(x)', '"memory": self.decoder_norm(x)', "unused-parameters"),
    row("id23", "only the first decoder layer looks at the source",
        'layer(x, allowed, encoded["memory"], encoded',
        'layer(x, allowed, encoded["memory"] if number == 0 else None, encoded',
        "cross-missing", "unused-parameters"),
    # embeddings, parameters, initialisation
    row("id24", "the head reads the source's embedding",
        "self.target_embed.tokens.weight)", "self.source_embed.tokens.weight)", "tie"),
    row("id25", "the padding row is drawn like the others", ZEROED, "", "padding-row-filled"),
    row("id26", "embeddings keep their default of unit variance",
        "    nn.init.normal_(table.weight, mean=0.0, std=dim**-0.5)\n", "", "init-scale"),
    row("id27", "embeddings are filled with zeros",
        "nn.init.normal_(table.weight, mean=0.0, std=dim**-0.5)", "nn.init.zeros_(table.weight)", "zero-embedding"),
    row("id28", "the table of positions is made in the first pass",
        TABLE, "        self.dim = dim\n", "lazy-state",
        also=((PLACED, "        if not hasattr(self, \"positions\"):\n"
               "            self.positions = embedding(self.pad + 1 + self.max_positions, self.dim, self.pad)\n"
               f"            self.positions.to(self.tokens.weight)\n{PLACED}"),)),
    row("id29", "decoder layers are in a plain list",
        "self.decoder = nn.ModuleList(Layer(dim, heads, dropout, cross=True) for _ in range(layers))",
        "self.decoder = [Layer(dim, heads, dropout, cross=True) for _ in range(layers)]", "unregistered"),
    row("id30", "the encoder runs without gradients",
        ENCODED, "        with torch.no_grad():\n            encoded = self.encode(source)\n        return",
        "detached"),
    row("id31", "the kernel drops out in evaluation",
        "dropout_p=self.dropout * self.training", "dropout_p=self.dropout", "dropout-in-eval"),
    # cache and generation
    row("id32", "the mask of new tokens is aligned at the top",
        CAUSAL, CAUSAL.replace("diagonal=total - length", ""), "causal-flag-cached"),
    row("id33", "no mask once something is cached",
        CAUSAL, f"{CAUSAL}\n        if before is not None:\n            causal = torch.ones_like(causal)",
        "chunk-mask"),
    row("id34", "positions forget what was read",
        "x = self.target_embed(target, before)", "x = self.target_embed(target)", "cache-offset"),
    row("id35", "keys and values of the source are not reordered",
        REORDERED, REORDERED.replace(
            "tensor.index_select(0, rows)", 'tensor if name.startswith("memory") else tensor.index_select(0, rows)'),
        "reorder-skipped"),
    row("id36", "generation feeds everything to a state that knows it",
        "scores = self.decode(encoded, latest, state)[:, -1]", "scores = self.decode(encoded, output, state)[:, -1]",
        "generate-step", "cache-contents"),
    row("id37", "generation ends in training mode",
        "self.train(was_training)", "self.train()", "mode-left"),
    row("id38", "the least likely token is taken",
        "latest = scores.argmax(dim=-1, keepdim=True)", "latest = scores.argsort(dim=-1)[:, :1]", "generate-step"),
    # loss and training
    row("id39", "the right word is among the wrong ones",
        "wrong = log_probs.sum(dim=-1) - right", "wrong = log_probs.sum(dim=-1)", "label-smoothing"),
    row("id40", "smoothing reaches padding",
        SUM, "return losses.sum()", "smoothing-over-padding",
        also=(("squeeze(-1)\n", "squeeze(-1).masked_fill(labels.eq(self.ignore), 0.0)\n"),)),
    row("id41", "the criterion ignores the source's padding id",
        "ignore: int = TARGET_PAD", "ignore: int = SOURCE_PAD", "ignored-token"),
    row("id42", "every label counts as a word",
        "labels.ne(TARGET_PAD).sum()", "labels.new_tensor(labels.numel())", "mean-over-padding"),
    row("id43", "labels are shifted twice",
        "    labels = target[:, 1:]\n", "    logits, labels = logits[:, :-1], target[:, 2:]\n", "labels-shifted-twice"),
    row("id44", "gradients are summed and never divided", DIVIDE, "", "loss-normaliser", "accumulation-scale"),
    row("id45", "gradients are clipped while they are sums", DIVIDE + CLIP, CLIP + DIVIDE, "clip-before-unscale"),
    row("id46", "the step comes after the first micro-batch",
        "            loss.backward()\n", "            loss.backward()\n            self.optimizer.step()\n"
        "            self.optimizer.zero_grad()\n", "accumulation-lost"),
    row("id47", "the optimizer leaves out vectors",
        "if p.ndim < 2]", "if p.ndim < 1]", "optimizer-misses"),
    row("id48", "the decay does not start from the peak",
        "else PEAK * (WARMUP / number) ** 0.5", "else PEAK * number**-0.5", "schedule-handover"),
    row("id49", "the warm-up begins at zero",
        "number = update + 1", "number = update", "warmup-zero"),
]
# fmt: on
