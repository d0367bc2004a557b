"""How the decoder, and the whole model, usually go wrong."""

from clearhead.learn.exercise import Mistake

SELF = "self.self_attention_residual(x, lambda x: self.self_attention(x, x, may_attend))"
CROSS = "self.cross_attention_residual(x, lambda x: self.cross_attention(x, memory, memory_may_attend))"
FEED = "self.feed_forward_residual(x, self.feed_forward)"
CAUSAL = "causal_mask(x.size(1)).to(x.device)"
PADDING = "None if source_real is None else padding_mask(source_real)"
LOOP = "            x = layer(x, memory, may_attend, memory_may_attend)\n"
ENCODE = "self.encoder(self.vectors(source), source_real)"
DECODE = "self.decoder(self.vectors(target), memory, source_real)"
HEAD = "hidden @ self.embedding.weight.T"
PLACED = "x + sinusoids(x.size(1), x.size(2)).to(x)"
FORWARD = "self.decode(target, self.encode(source, source_real), source_real)"


def layer(id: str, say: str, *changes: tuple[str, str], where: str = r"attention|feed_forward") -> Mistake:
    return Mistake(id, "DecoderLayer", say, changes=changes, where=where)


def stack(id: str, say: str, *changes: tuple[str, str], where: str = r"layer\(") -> Mistake:
    return Mistake(id, "Decoder", say, changes=changes, where=where)


def whole(id: str, say: str, *changes: tuple[str, str], where: str = r"return") -> Mistake:
    return Mistake(id, "Transformer", say, changes=changes, where=where)


CROSSING = r"cross_attention\("

MISTAKES = (
    layer("mask-missing", "self-attention has no mask: it sees its future", (SELF, SELF.replace(", may_attend", ""))),
    layer(
        "cross-padding-missing",
        "cross-attention sees the source's padding: its mask is never passed",
        (CROSS, CROSS.replace(", memory_may_attend", "")),
        where=CROSSING,
    ),
    layer(
        "cross-reads-target",
        "cross-attention reads x itself: keys and values come from the memory",
        (CROSS, CROSS.replace("memory, memory_may_attend", "x, memory_may_attend")),
        where=CROSSING,
    ),
    layer(
        "cross-reads-target",
        "cross-attention reads x itself: keys and values come from the memory, and so does its mask",
        (CROSS, CROSS.replace("memory, memory_may_attend", "x")),
        where=CROSSING,
    ),
    layer(
        "cross-reads-target",
        "cross-attention is a second self-attention: keys and values come from the memory",
        (CROSS, CROSS.replace("memory, memory_may_attend", "x, may_attend")),
        where=CROSSING,
    ),
    layer(
        "roles-swapped",
        "in cross-attention the memory asks and the target answers: it is the other way round",
        (CROSS, CROSS.replace("x, memory, memory_may_attend", "memory, x, memory_may_attend")),
        where=CROSSING,
    ),
    layer(
        "roles-swapped",
        "in cross-attention the memory asks and the target answers: it is the other way round",
        (CROSS, CROSS.replace("x, memory, memory_may_attend", "memory, x")),
        where=CROSSING,
    ),
    layer(
        "masks-swapped",
        "each attention got the other one's mask",
        (SELF, SELF.replace("may_attend", "memory_may_attend")),
        (CROSS, CROSS.replace("memory_may_attend", "may_attend")),
        where=r"may_attend",
    ),
    layer(
        "source-causal",
        "the causal mask reached cross-attention: every target token may look at the whole source",
        (CROSS, CROSS.replace("memory_may_attend", "may_attend")),
        where=CROSSING,
    ),
    layer("cross-missing", "the layer never looks at the source", (f"        x = {CROSS}\n", "")),
    layer(
        "self-reads-source",
        "self-attention reads the source: its keys and values come from x",
        (SELF, "self.self_attention_residual(x, lambda x: self.self_attention(x, memory, memory_may_attend))"),
    ),
    layer(
        "sublayers-swapped",
        "cross-attention ran before self-attention",
        (f"x = {SELF}", "x = FIRST"),
        (f"x = {CROSS}", f"x = {SELF}"),
        ("FIRST", CROSS),
    ),
    layer(
        "sublayers-swapped",
        "the feed-forward ran before cross-attention",
        (f"return {FEED}", f"return {CROSS}"),
        (f"x = {CROSS}", f"x = {FEED}"),
    ),
    layer(
        "residual-missing",
        "cross-attention has no residual around it",
        (CROSS, "self.cross_attention(x, memory, memory_may_attend)"),
        where=CROSSING,
    ),
    layer(
        "residual-missing",
        "self-attention has no residual around it",
        (SELF, "self.self_attention(x, x, may_attend)"),
    ),
    layer("residual-missing", "the feed-forward has no residual around it", (FEED, "self.feed_forward(x)")),
    layer("sublayer-missing", "the feed-forward is left out", (f"return {FEED}", "return x")),
    layer("sublayer-missing", "self-attention is left out", (f"        x = {SELF}\n", "")),
    layer(
        "norm-shared",
        "cross-attention uses self-attention's residual, and so its norm",
        (CROSS, CROSS.replace("cross_attention_residual", "self_attention_residual")),
        where=r"residual",
    ),
    layer(
        "norm-shared",
        "the feed-forward uses another sub-layer's residual, and so its norm",
        (FEED, "self.cross_attention_residual(x, self.feed_forward)"),
        where=r"residual",
    ),
    layer(
        "attention-shared",
        "self-attention's matrices were used for cross-attention",
        (CROSS, CROSS.replace("self.cross_attention(", "self.self_attention(")),
        where=r"self_attention\(",
    ),
    layer(
        "sublayers-parallel",
        "cross-attention asks with what the layer was given, not with what self-attention made of it",
        (f"x = {SELF}", f"y = {SELF}"),
        (f"x = {CROSS}", f"x = {CROSS.replace('residual(x, lambda x: self', 'residual(y, lambda _: self')}"),
    ),
    *(
        stack(
            "positions-again",
            "positions were added once more in the stack: they are added once, to the embedding",
            (LOOP, f"            placed = {placed}\n" + LOOP.replace("layer(x,", "layer(placed,")),
            where=r"sinusoids|position|pos\b",
        )
        for placed in (PLACED, f"x if layer is self.layers[0] else {PLACED}")
    ),
    *(
        whole(
            "shifted-inside",
            "the target was shifted once more inside the model: what the decoder reads is given, exercise 11 shifts it",
            (FORWARD, FORWARD.replace("decode(target,", f"decode({shifted},")),
            where=r"shift|cat|pad|:-1|roll",
        )
        for shifted in (
            "torch.cat((target[:, :1], target[:, :-1]), 1)",
            "nn.functional.pad(target[:, :-1], (1, 0))",
            "target.roll(1, 1)",
        )
    ),
    stack(
        "source-causal",
        "cross-attention was made causal: every target token may look at the whole source",
        (
            f"memory_may_attend = {PADDING}",
            "memory_may_attend = torch.ones(x.size(1), memory.size(1), dtype=torch.bool).tril()\n"
            "        if source_real is not None:\n"
            "            memory_may_attend = memory_may_attend & padding_mask(source_real)",
        ),
        where=r"tril|causal",
    ),
    stack(
        "mask-missing",
        "the future is not hidden: a token sees the ones that it should predict",
        (CAUSAL, "torch.ones(x.size(1), x.size(1), dtype=torch.bool)"),
        where=r"mask|ones",
    ),
    stack(
        "mask-missing",
        "the future is not hidden: a token sees the ones that it should predict",
        (CAUSAL, "None"),
        where=r"mask|layer\(",
    ),
    stack(
        "mask-diagonal",
        "the causal mask is one too far: each token sees the next one",
        (CAUSAL, "torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(1)"),
        where=r"tril|triu|mask",
    ),
    stack("mask-inverted", "the causal mask is the wrong way round", (CAUSAL, f"~{CAUSAL}"), where=r"~|mask"),
    stack(
        "mask-inverted",
        "the source's mask is the wrong way round: only padding is seen",
        (PADDING, "None if source_real is None else padding_mask(~source_real)"),
        where=r"~|padding_mask",
    ),
    stack("cross-padding-missing", "the source's padding is never hidden", (PADDING, "None")),
    stack(
        "padding-axis",
        "the source's padding was hidden on the side of the queries",
        (PADDING, "None if source_real is None else source_real[:, None, :, None]"),
        where=r"None, :",
    ),
    stack(
        "mask-broadcast",
        "source_real (B, T) went to the attention as it is; padding_mask gives it the dimensions it needs",
        (PADDING, "source_real"),
    ),
    stack(
        "none-crashes",
        "source_real may be None: then all of the source is real",
        (PADDING, "padding_mask(source_real)"),
        where=r"padding_mask",
    ),
    stack(
        "mask-first-layer",
        "the source's padding is hidden from the first layer only",
        (LOOP, LOOP + "            memory_may_attend = None\n"),
    ),
    stack(
        "mask-first-layer",
        "the future is hidden in the first layer only",
        (LOOP, LOOP + "            may_attend = torch.ones_like(may_attend)\n"),
    ),
    stack(
        "memory-updated",
        "later layers look at the target's states: all of them look at the encoder's memory",
        (LOOP, LOOP + "            memory, memory_may_attend = x, None\n"),
    ),
    stack(
        "memory-updated",
        "each layer's result became the memory: x goes on from layer to layer, and the memory stays the encoder's",
        (LOOP, LOOP.replace("x = layer", "memory = layer")),
        ("        return x", "        return memory"),
    ),
    stack(
        "masks-swapped",
        "the source's padding was hidden in self-attention, which looks at the target: it belongs to cross-attention",
        (CAUSAL, CAUSAL + " & (torch.tensor(True) if source_real is None else padding_mask(source_real))"),
        (PADDING, "None"),
        where=r"&|padding_mask",
    ),
    stack(
        "layers-parallel",
        "every layer read the input; each should read what the one before it made",
        (LOOP, "            out = layer(x, memory, may_attend, memory_may_attend)\n"),
        ("        return x", "        return out"),
    ),
    stack("layers-reversed", "the layers ran in the wrong order", ("in self.layers", "in reversed(self.layers)")),
    stack("layer-left-out", "the last layer never ran", ("in self.layers", "in self.layers[:-1]")),
    stack(
        "layers-repeated",
        "the first layer ran every time; the others never",
        (LOOP, LOOP.replace("layer(", "self.layers[0](")),
        where=r"\[0\]",
    ),
    whole(
        "encoder-padding-missing",
        "the encoder is not told what is padding",
        (ENCODE, "self.encoder(self.vectors(source))"),
        where=r"encoder\(",
    ),
    whole(
        "encoder-padding-missing",
        "forward does not tell the encoder what is padding",
        (FORWARD, "self.decode(target, self.encode(source), source_real)"),
        where=r"encode\(",
    ),
    whole(
        "cross-padding-missing",
        "the decoder is not told what is padding in the source",
        (DECODE, "self.decoder(self.vectors(target), memory)"),
        where=r"decoder\(",
    ),
    whole(
        "cross-padding-missing",
        "forward does not tell the decoder what is padding in the source",
        (FORWARD, "self.decode(target, self.encode(source, source_real))"),
        where=r"decode\(",
    ),
    whole(
        "positions-missing",
        "the source has no positions: use self.vectors",
        (ENCODE, "self.encoder(embed(source, self.embedding.weight), source_real)"),
        where=r"embed",
    ),
    whole(
        "positions-missing",
        "the source has neither scale nor positions: use self.vectors",
        (ENCODE, "self.encoder(self.embedding(source), source_real)"),
        where=r"embed",
    ),
    whole(
        "positions-missing",
        "the target has no positions: use self.vectors",
        (DECODE, "self.decoder(embed(target, self.embedding.weight), memory, source_real)"),
        where=r"embed",
    ),
    whole(
        "positions-missing",
        "the target has neither scale nor positions: use self.vectors",
        (DECODE, "self.decoder(self.embedding(target), memory, source_real)"),
        where=r"embed",
    ),
    whole(
        "detached",
        "the memory is cut off from the graph: the encoder gets no gradient",
        (FORWARD, "self.decode(target, self.encode(source, source_real).detach(), source_real)"),
        where=r"detach|no_grad|data",
    ),
    whole(
        "head-scaled",
        "the logits were multiplied by √D: that belongs to the embedding alone",
        (HEAD, HEAD + " * math.sqrt(hidden.size(-1))"),
        where=r"weight|logits",
    ),
    whole(
        "head-scaled",
        "the logits were divided by √D: the table is used as it is",
        (HEAD, HEAD + " / math.sqrt(hidden.size(-1))"),
        where=r"weight|logits",
    ),
    whole(
        "tie",
        "the head reads a copy of the table that gets no gradient: use the parameter itself",
        (HEAD, "hidden @ self.embedding.weight.detach().T"),
        where=r"detach|data|clone",
    ),
    whole("head-missing", "these are states (B, S, D), not logits (B, S, V): the head is missing", (HEAD, "hidden")),
    whole(
        "softmax-twice",
        "logits are wanted, before any softmax: the loss has its own",
        (HEAD, f"({HEAD}).softmax(-1)"),
        where=r"softmax",
    ),
    whole(
        "softmax-twice",
        "logits are wanted, before any softmax: the loss has its own",
        (HEAD, f"({HEAD}).log_softmax(-1)"),
        where=r"softmax",
    ),
    whole("last-only", "only the last position speaks; logits of all are wanted", (HEAD, f"({HEAD})[:, -1:]")),
    whole(
        "encode-skipped",
        "the decoder looks at the source's vectors: the encoder never ran",
        (FORWARD, "self.decode(target, self.vectors(source), source_real)"),
    ),
    whole(
        "source-target-swapped",
        "source and target changed places",
        (FORWARD, "self.decode(source, self.encode(target), None)"),
    ),
    whole(
        "target-leak",
        "the target went through the encoder: the decoder sees all of it",
        (FORWARD, "self.decode(target, self.encode(target), None)"),
    ),
    whole(
        "stacks-swapped",
        "the encoder read the target too: decode must use the decoder",
        (DECODE, "self.encoder(self.vectors(target))"),
        where=r"encoder\(",
    ),
)
