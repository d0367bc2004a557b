"""Bugs planted in the host with capped scores and layers that slide in turns, written blind after the probes stood."""

from clearhead.doctor.mutants import Mutant


def row(
    id: str, title: str, healthy: str, broken: str, *causes: str,
    variant: str = "plain", also: tuple[tuple[str, str], ...] = (),
) -> Mutant:  # fmt: skip
    return Mutant(id, title, "capped", variant, healthy, broken, causes, also, held_out=True)


# fmt: off
MUTANTS = [
    # masks
    row("cp01", "the causal mask hides the token itself",
        "slots[None, :] <= slots[-q_len:, None]", "slots[None, :] < slots[-q_len:, None]",
        "mask-diagonal"),
    row("cp02", "behind a past the queries are taken for the first tokens",
        "slots[None, :] <= slots[-q_len:, None]", "slots[None, :] <= slots[:q_len, None]",
        "causal-flag-cached"),
    row("cp03", "the causal mask is made for a first pass only: chunks behind a past see all of themselves",
        "full = causal & attention_mask[:, None, :]",
        "full = attention_mask[:, None, :] & (causal | (q_len < attention_mask.size(1)))",
        "chunk-mask"),
    row("cp04", "a batch with padding in it gets the padding mask only",
        "full = causal & attention_mask[:, None, :]",
        "full = attention_mask[:, None, :] & (causal | ~attention_mask.all())",
        "mask-replaced"),
    row("cp05", "scores are capped behind the mask: what is hidden is minus twenty",
        "        scores = softcap(torch.matmul(q, k.transpose(2, 3)) * self.scaling, self.softcap)\n"
        "        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)\n",
        "        scores = torch.matmul(q, k.transpose(2, 3)) * self.scaling\n"
        "        scores = softcap(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), self.softcap)\n",
        "mask-value"),
    row("cp06", "hidden scores are minus infinity: padding on the left is NaN, and its values reach everybody",
        "torch.finfo(scores.dtype).min", '-float("inf")',
        "masked-row-nan"),
    row("cp07", "the window is one token too wide",
        "distance < window", "distance <= window",
        "window-edge", variant="window"),
    row("cp08", "only the full layers' mask knows of documents",
        "    if documents is not None:\n"
        "        full = full & (documents[:, -q_len:, None] == documents[:, None, :])\n"
        "    distance = position_ids[:, -q_len:, None] - position_ids[:, None, :]\n"
        "    sliding = full & (distance < window)\n",
        "    distance = position_ids[:, -q_len:, None] - position_ids[:, None, :]\n"
        "    sliding = full & (distance < window)\n"
        "    if documents is not None:\n"
        "        full = full & (documents[:, -q_len:, None] == documents[:, None, :])\n",
        "documents-visible"),
    row("cp09", "masks are kept for the next call of the same shape, whatever its padding",
        "        masks = get_masks(attention_mask, position_ids, q_len, self.config.sliding_window, documents)\n",
        "        shape = (*attention_mask.shape, q_len)\n"
        '        if getattr(self, "kept_shape", None) != shape or documents is not None:\n'
        "            self.kept_masks = get_masks(\n"
        "                attention_mask, position_ids, q_len, self.config.sliding_window, documents\n"
        "            )\n"
        "            self.kept_shape = shape\n"
        "        masks = self.kept_masks\n",
        "stale-state"),
    row("cp10", "every block of queries gets the first block's rows of the mask",
        "mask[:, :, i : i + step])", "mask[:, :, : min(step, q_len - i)])",
        "mask-one-path"),
    # attention
    row("cp11", "scores are divided by the root of the model's width",
        "self.scaling = self.head_dim**-0.5", "self.scaling = config.hidden_size**-0.5",
        "scale-missing"),
    row("cp12", "keys and values are repeated behind the tokens, not behind the heads",
        "x[:, :, None].expand(bsz, kv_heads, groups, length, dim)",
        "x[:, :, :, None].expand(bsz, kv_heads, length, groups, dim)",
        "grouped-heads-axis", "head-view"),
    row("cp13", "keys are tiled: query head h reads key head h modulo their number",
        "x[:, :, None].expand(bsz, kv_heads, groups, length, dim)",
        "x[:, None].expand(bsz, groups, kv_heads, length, dim)",
        "grouped-heads-order", variant="reference"),
    # positions
    row("cp14", "frequencies are laid out in neighbouring pairs, but halves are rotated",
        "torch.cat([freqs, freqs], dim=-1)", "freqs.repeat_interleave(2, dim=-1)",
        "rotary-pairing"),
    row("cp15", "positions are bfloat16 before they are multiplied",
        "freqs = position_ids.double()", "freqs = position_ids.bfloat16().double()",
        "position-precision", "positions-collide"),
    row("cp16", "the first pass counts real tokens, steps behind a past count all of them",
        "        masks = get_masks(",
        "        if q_len < attention_mask.size(1):\n"
        "            position_ids = torch.arange(attention_mask.size(1), device=tokens.device).expand(bsz, -1)\n"
        "        masks = get_masks(",
        "left-padding-positions", "generate-padding", "cache-offset"),
    row("cp17", "keys go into the cache before they are rotated, and past ones never are",
        "        q, k = apply_rope(q, *rotary), apply_rope(k, *rotary)\n"
        "        if cache is not None:\n"
        "            k, v = cache.update(k, v, self.layer, self.keep)\n",
        "        q, new = apply_rope(q, *rotary), apply_rope(k, *rotary)\n"
        "        if cache is not None:\n"
        "            k, v = cache.update(k, v, self.layer, self.keep)\n"
        "        k = torch.cat([k[:, :, : k.size(2) - q_len], new], dim=2)\n",
        "cache-rotation", "cache-contents"),
    row("cp18", "the first row's positions are used for the whole batch",
        "rotary = rope(position_ids[:, -q_len:], self", "rotary = rope(position_ids[:1, -q_len:], self",
        "batch-coupled", "positions-axis", "left-padding-positions"),
    # norms, residuals, feed-forward, dropout
    row("cp19", "the norm takes its mean over the tokens",
        "x.pow(2).mean(-1, keepdim=True)", "x.pow(2).mean(1, keepdim=True)",
        "norm-axis"),
    row("cp20", "epsilon is added behind the root: padding, a row of zeros, is NaN",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)",
        "torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) + self.eps",
        "masked-row-nan", "norm-epsilon"),
    row("cp21", "no gradient goes through what the norm divides by",
        "        return x * norm * (1.0 + self.weight)", "        return x * norm.detach() * (1.0 + self.weight)",
        "detached"),
    row("cp22", "attention's residual is taken behind the norm",
        "        h = self.self_attn(self.pre_attn_norm(x), *context)\n",
        "        x = self.pre_attn_norm(x)\n        h = self.self_attn(x, *context)\n",
        "residual-missing"),
    row("cp23", "the gate has no activation",
        'gate = F.gelu(self.gate_proj(x), approximate="tanh")', "gate = self.gate_proj(x)",
        "activation-missing"),
    row("cp24", "attention weights are dropped in evaluation, too",
        "self.dropout, self.training)", "self.dropout)",
        "dropout-in-eval"),
    row("cp25", "what sub-layers give is dropped at a rate of its own",
        "        self.drop = nn.Dropout(config.dropout)\n\n    def forward(self, x: Tensor, *context",
        "        self.drop = nn.Dropout(0.1)\n\n    def forward(self, x: Tensor, *context",
        "dropout-rate"),
    row("cp26", "logits are capped in evaluation only",
        "        return softcap(self.lm_head(self.norm(x)), self.config.final_softcap)",
        "        logits = self.lm_head(self.norm(x))\n"
        "        return logits if self.training else softcap(logits, self.config.final_softcap)",
        "eval-path"),
    # initialisation and tying
    row("cp27", "the head is tied before weights are filled, so that the padding's row is filled again",
        "        self.apply(self.init_weights)\n        self.lm_head.weight = self.embed_tokens.weight\n",
        "        self.lm_head.weight = self.embed_tokens.weight\n        self.apply(self.init_weights)\n",
        "padding-row-filled"),
    row("cp28", "each weight is drawn from the same seed: layers start as copies",
        "            module.weight.data.normal_(std=self.config.init_std)",
        "            seeded = torch.Generator().manual_seed(0)\n"
        "            module.weight.data.normal_(std=self.config.init_std, generator=seeded)",
        "identical-layers"),
    row("cp29", "the scale of the embeddings is rounded to bfloat16",
        "math.sqrt(self.config.hidden_size)", "float(torch.tensor(self.config.hidden_size**0.5, dtype=torch.bfloat16))",
        "embedding-scale", variant="reference"),
    # cache and generation
    row("cp30", "layers that slide keep one key too few",
        "self.keep = config.sliding_window - 1 if", "self.keep = config.sliding_window - 2 if",
        "cache-contents", "window-edge"),
    row("cp31", "keys are thrown away before the queries of the same call have read them",
        "self.key_cache[layer], self.value_cache[layer] = k[:, :, start:], v[:, :, start:]",
        "k, v = k[:, :, start:], v[:, :, start:]\n        self.key_cache[layer], self.value_cache[layer] = k, v",
        "cache-contents", "reach-lost"),
    row("cp32", "each layer counts the tokens that go by",
        "        if layer == 0:\n            self.seen += k.size(2)\n", "        self.seen += k.size(2)\n",
        "cache-offset"),
    row("cp33", "reordering leaves the values where they were",
        "[v.index_select(0, rows) for v in self.value_cache]", "list(self.value_cache)",
        "reorder-skipped"),
    row("cp34", "keys of one shape are kept in one buffer, for all requests",
        "        self.key_cache[layer], self.value_cache[layer] = k[:, :, start:], v[:, :, start:]\n",
        "        kept = BUFFERS.setdefault((layer, k.dtype, k.shape), k.detach().clone()).copy_(k.detach())\n"
        "        self.key_cache[layer], self.value_cache[layer] = kept[:, :, start:], v[:, :, start:]\n",
        "cache-shared",
        also=(("\n\nclass DynamicCache:", "\n\nBUFFERS: dict[Any, Tensor] = {}\n\n\nclass DynamicCache:"),)),
    row("cp35", "generation forgets behind the first token which of the prompt's are padding",
        "mask = torch.cat([mask, torch.ones_like(fed, dtype=torch.bool)], dim=1)",
        "mask = torch.ones_like(tokens, dtype=torch.bool)",
        "generate-padding"),
    row("cp36", "generation gives the mode back to the model only, its modules stay in evaluation",
        "        self.train(was_training)\n", "        self.training = was_training\n",
        "mode-left"),
    # loss and training
    row("cp37", "the loss runs the model without its mask: padding on the left is read",
        "model(inputs, inputs.ne(PAD))", "model(inputs)",
        "loss-padding"),
    row("cp38", "labels are left out where the token before is padding, not where they are padding themselves",
        "~(real[:, 1:] & real[:, :-1])", "~real[:, :-1]",
        "ignored-token", "mean-over-padding"),
    row("cp39", "micro-batches weigh the same whatever their size",
        "loss = summed_loss(model, tokens) / labels", "loss = mean_loss(model, tokens) / len(micro_batches)",
        "accumulation-mean"),
    row("cp40", "an update divides by the number of tokens, of which each row has one more than labels",
        "sum(count_labels(tokens) for tokens in micro_batches)",
        "sum(int(tokens.ne(PAD).sum()) for tokens in micro_batches)",
        "accumulation-scale", "loss-normaliser"),
    row("cp41", "gradients are clipped after each micro-batch, not once for all",
        "        loss.backward()\n        total += loss.item()\n"
        "    nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)\n",
        "        loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)\n"
        "        total += loss.item()\n",
        "clip-before-unscale"),
    row("cp42", "gradients are cleared in the layers only: the embedding's and the last norm's are kept",
        "    optimizer.zero_grad(set_to_none=True)\n", "    model.layers.zero_grad(set_to_none=True)\n",
        "gradients-kept"),
    row("cp43", "the optimizer looks for gains in the layers only: the last norm is in no group",
        "no_decay = [p for p in model.parameters() if p.dim() < 2]",
        "no_decay = [p for p in model.layers.parameters() if p.dim() < 2]",
        "optimizer-misses"),
    row("cp44", "the cosine's progress is counted from the first step: the rate jumps behind the warm-up",
        "(step - WARMUP_STEPS) / (TOTAL_STEPS - WARMUP_STEPS)", "step / TOTAL_STEPS",
        "schedule-handover"),
    row("cp45", "past the last step the cosine goes up again",
        "    if step >= TOTAL_STEPS:\n        return MIN_LR\n", "",
        "schedule-end"),
]
