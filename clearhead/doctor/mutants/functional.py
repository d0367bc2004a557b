"""Bugs planted in the functional GPT, all written after the probes stood."""

from clearhead.doctor.mutants import Mutant

LOOK = "look = s[:, None] >= t[None, :]"
DOCUMENTS = "look = look & (documents[:, :, None] == documents[:, None, :])"
SCORES = 'scores = einsum("bsgrk,btgk->bgrst", q, k) / math.sqrt(q.size(-1))'
FILL = "    scores = scores.masked_fill(~look, torch.finfo(scores.dtype).min)\n"
WEIGHTS = "F.dropout(scores.softmax(dim=-1), dropout)"
UP = 'F.silu(einsum("bsd,df->bsf", x, gate)) * einsum("bsd,df->bsf", x, up)'
TURNED = "even * sin + odd * cos"
KEYS = 'rope(einsum("bsd,dgk->bsgk", h, params[f"h{i}_wk"]), positions)'
NEXT = "out = gpt(params, shape, new, (out.keys, out.values), real)"
NLL = 'F.cross_entropy(einsum("bsv->bvs", logits), targets, reduction="none")'
DIVIDE = """    with torch.no_grad():
        for p in model.params.values():
            if p.grad is not None:
                p.grad /= count
"""
CLIPPED = "    torch.nn.utils.clip_grad_norm_(model.params.values(), CLIP)\n"
ACCUMULATE = "        batch_loss.backward()\n"
RUN = "return gpt(self.params, self.shape, tokens, cache, real, documents, dropout)"


def row(
    id: str, title: str, healthy: str, broken: str, *causes: str,
    variant: str = "plain", also: tuple[tuple[str, str], ...] = (),
) -> Mutant:  # fmt: skip
    return Mutant(id, title, "functional", variant, healthy, broken, causes, also, held_out=True)


# fmt: off
MUTANTS = [
    # masks
    row("fn01", "a token may not look at itself", LOOK, LOOK.replace(">=", ">"), "mask-diagonal"),
    row("fn02", "queries and keys change places in the comparison", LOOK, LOOK.replace(">=", "<="), "mask-inverted"),
    row("fn03", "what is hidden is set to zero after the softmax",
        FILL, "", "mask-after-softmax", also=((WEIGHTS, "F.dropout(scores.softmax(dim=-1) * look, dropout)"),)),
    row("fn04", "hidden scores become zero",
        "scores.masked_fill(~look, torch.finfo(scores.dtype).min)", "scores * look", "mask-value"),
    row("fn05", "padding hides queries, not keys",
        "look = look & real[:, None, :]", "look = look & real[:, -queries:, None]", "padding-axis"),
    row("fn06", "the first row's padding is taken for all rows",
        "look = look & real[:, None, :]", "look = look & real[:1, None, :]", "mask-broadcast", "batch-coupled"),
    row("fn07", "the mask of documents takes the place of the causal one",
        DOCUMENTS, DOCUMENTS.replace("look & ", ""), "mask-replaced", "mask-one-path", "mask-missing"),
    row("fn08", "documents are passed on and not used",
        f"    if documents is not None:\n        {DOCUMENTS}\n", "", "documents-visible"),
    row("fn09", "padding is hidden only while nothing is cached",
        "    if real is not None:\n        look", "    if real is not None and past == 0:\n        look",
        "generate-padding", "mask-one-path", "padding-ignored"),
    # shapes
    row("fn10", "softmax over the queries", WEIGHTS, WEIGHTS.replace("dim=-1", "dim=-2"), "softmax-axis"),
    row("fn11", "every query head uses the first key head",
        'einsum("bsgrk,btgk->bgrst", q, k)', 'einsum("bsgrk,btk->bgrst", q, k[:, :, 0])',
        "heads-shared", "unused-parameters"),
    row("fn12", "the mean square runs over the sequence",
        "x.square().mean(dim=-1, keepdim=True)", "x.square().mean(dim=1, keepdim=True)", "norm-axis"),
    row("fn13", "the letters of rows and heads are exchanged in the output",
        'einsum("bgrst,btgk->bsgrk", weights, v)',
        'einsum("bgrst,btgk->bgsrk", weights, v).reshape(q.shape)', "head-view"),
    # positions and scale
    row("fn14", "scores are multiplied by the root", SCORES, SCORES.replace(" / ", " * "), "scale-missing"),
    row("fn15", "keys are not rotated", KEYS, 'einsum("bsd,dgk->bsgk", h, params[f"h{i}_wk"])', "rotary-pairing"),
    row("fn16", "values are rotated too",
        'v = einsum("bsd,dgk->bsgk", h, params[f"h{i}_wv"])',
        'v = rope(einsum("bsd,dgk->bsgk", h, params[f"h{i}_wv"]), positions)', "rotary-pairing"),
    row("fn17", "a sign of the rotation is wrong", TURNED, TURNED.replace("+", "-"), "rotary-pairing"),
    row("fn18", "positions are kept in bfloat16",
        "angle = positions.to(torch.float64)[..., None] * theta",
        "angle = positions.to(torch.bfloat16).to(torch.float64)[..., None] * theta", "position-precision"),
    row("fn19", "positions of new tokens begin at zero",
        "torch.arange(past, past + s).expand(b, s)", "torch.arange(s).expand(b, s)", "cache-offset"),
    row("fn20", "with padding the positions of the first tokens are taken",
        "(real.long().cumsum(dim=1) - 1).clamp(min=0)[:, past:]",
        "(real.long().cumsum(dim=1) - 1).clamp(min=0)[:, :s]", "cache-offset", "generate-padding"),
    # sub-layers
    row("fn21", "the output of attention replaces the stream",
        'x = x + F.dropout(einsum("bsgrk,grkd->bsd"', 'x = F.dropout(einsum("bsgrk,grkd->bsd"', "residual-missing"),
    row("fn22", "the gate is used where `up` should be",
        UP, UP.replace("x, up)", "x, gate)"), "unused-parameters"),
    row("fn23", "a sigmoid where the gate has SiLU",
        UP, UP.replace("F.silu", "torch.sigmoid"), "activation-variant", variant="reference"),
    row("fn24", "epsilon is added to the root",
        "torch.sqrt(x.square().mean(dim=-1, keepdim=True) + eps)",
        "(torch.sqrt(x.square().mean(dim=-1, keepdim=True)) + eps)", "norm-epsilon", variant="reference"),
    row("fn25", "the last norm is left out",
        'einsum("bsd,vd->bsv", rms_norm(x, params["norm_f"]), params["wte"])',
        'einsum("bsd,vd->bsv", x, params["wte"])', "unused-parameters"),
    # initialisation, parameters, dropout
    row("fn26", "embeddings of unit variance",
        "torch.randn(shape.vocab, d) * 0.02", "torch.randn(shape.vocab, d)", "init-scale"),
    row("fn27", "each layer is drawn from the same seed",
        "        params |= {\n", "        torch.manual_seed(d)\n        params |= {\n", "identical-layers"),
    row("fn28", "dropout does not depend on the mode",
        "dropout = self.shape.dropout if self.training else 0.0", "dropout = self.shape.dropout", "dropout-in-eval"),
    row("fn29", "the blocks are run without dropout",
        "block(params, i, x, positions, look, layer_past, dropout)",
        "block(params, i, x, positions, look, layer_past, 0.0)", "dropout-missing", "dropout-rate"),
    row("fn30", "the module runs a function made over its first parameters",
        "self.params = nn.ParameterDict(init_params(shape))",
        "self.params = params = nn.ParameterDict(init_params(shape))\n"
        "        self.run = lambda *inputs: gpt(params, shape, *inputs)", "closure-kept",
        also=((RUN, "return self.run(tokens, cache, real, documents, dropout)"),)),
    # cache and generation
    row("fn31", "new queries are numbered from zero in the mask",
        "s = torch.arange(past, past + queries)", "s = torch.arange(queries)", "causal-flag-cached"),
    row("fn32", "every layer continues the first layer's cache",
        "(cache[0][i], cache[1][i])", "(cache[0][0], cache[1][0])", "cache-contents"),
    row("fn33", "new values go in front of the old ones",
        "torch.cat([past[1], v], dim=1)", "torch.cat([v, past[1]], dim=1)", "cache-contents"),
    row("fn34", "values keep their rows when beams change",
        "return cache[0][:, rows], cache[1][:, rows]", "return cache[0][:, rows], cache[1]", "reorder-skipped"),
    row("fn35", "the first position is continued",
        "pick(out.logits[:, -1], temperature)", "pick(out.logits[:, 0], temperature)", "generate-step"),
    row("fn36", "after the prompt generation forgets the padding",
        NEXT, NEXT.replace(", real)", ")"), "generate-padding"),
    row("fn37", "the prompt's cache is kept for every step",
        NEXT, "out = Output(gpt(params, shape, new, (out.keys, out.values)).logits, out.keys, out.values)",
        "generate-step", "cache-contents"),
    # loss and training
    row("fn38", "the class axis is made by a reshape",
        'einsum("bsv->bvs", logits)', "logits.reshape(logits.size(0), logits.size(2), logits.size(1))",
        "loss-mispaired"),
    row("fn39", "probabilities go into the cross-entropy",
        NLL, NLL.replace("logits)", "logits.softmax(dim=-1))"), "softmax-twice"),
    row("fn40", "the last token is asked for the first",
        "inputs, targets = tokens[:, :-1], tokens[:, 1:]", "inputs, targets = tokens, tokens.roll(-1, dims=1)",
        "labels-rolled"),
    row("fn41", "padding counts in the mean",
        "int(keep.sum())", "targets.numel()", "mean-over-padding"),
    row("fn42", "gradients are clipped before they are divided",
        DIVIDE + CLIPPED, CLIPPED + DIVIDE, "clip-before-unscale"),
    row("fn43", "gradients are never cleared",
        "    optimizer.zero_grad(set_to_none=True)\n", "", "gradients-kept"),
    row("fn44", "each micro-batch weighs the same",
        ACCUMULATE, "        (batch_loss / batch_count).backward()\n", "accumulation-mean",
        also=(("p.grad /= count", "p.grad /= len(batches)"),)),
    row("fn45", "the embedding is in no group of the optimizer",
        'if "norm" not in name]', 'if "norm" not in name and name.startswith("h")]', "optimizer-misses"),
    row("fn46", "the cosine goes on beyond its end",
        "done = min(1.0, (step + 1 - WARMUP) / (STEPS - WARMUP))", "done = (step + 1 - WARMUP) / (STEPS - WARMUP)",
        "schedule-end"),
    row("fn47", "the cosine begins with the warm-up",
        "(step + 1 - WARMUP) / (STEPS - WARMUP)", "(step + 1) / STEPS", "schedule-handover"),
]
# fmt: on
