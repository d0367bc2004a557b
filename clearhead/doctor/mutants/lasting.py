"""Bugs that outlast a pass: modes left behind, copies that hang together, long prompts, padding, late updates."""

from clearhead.doctor.mutants import Mutant

END = "            logits = self(tokens[:, -1:], cache=cache)\n        return tokens"
GENERATE = f"""        cache = Cache(self.config.window)
        logits = self(tokens, cache=cache)
        for _ in range(count):
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
{END}"""
CROPPED = """        for _ in range(count):
            logits = self(tokens[:, : self.config.max_length])
            tokens = torch.cat([tokens, logits[:, -1:].argmax(dim=-1)], dim=1)
        return tokens"""
TABLE = """            if offset + length > config.max_length:
                raise ValueError(f"{offset + length} tokens, but positions were learned for {config.max_length}")
            x = x + self.position(positions)"""
RATE = "return width**-0.5 * min(step**-0.5, step * WARMUP**-1.5)"
BUILT = """    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.width)
        if"""
DROPPED = "weights = F.dropout(weights, self.config.dropout, self.training)"


def row(
    id: str, title: str, host: str, variant: str, healthy: str, broken: str, *causes: str,
    also: tuple[tuple[str, str], ...] = (),
) -> Mutant:  # fmt: skip
    return Mutant(id, title, host, variant, healthy, broken, causes, also)


MUTANTS = [
    row("y01", "attention keeps a dropout rate of its own", "decoder", "rotary",
        DROPPED, "weights = F.dropout(weights, 0.1, self.training)", "dropout-rate"),
    row("y02", "dropout not divided by what it keeps", "encoder", "plain",
        "weights = F.dropout(weights, self.dropout, self.training)",
        "weights = weights * torch.empty_like(weights).bernoulli_(1 - self.dropout * self.training)",
        "dropout-unscaled", "eval-path"),
    row("y03", "generate ends in training mode", "decoder", "rotary",
        END, END.replace("        return", "        self.train()\n        return"), "mode-left"),
    row("y04", "generate ends in evaluation mode", "decoder", "rotary",
        END, END.replace("        return", "        self.eval()\n        return"), "mode-left"),
    row("y05", "an update ends in evaluation mode", "loop", "loop",
        "    scaler.update()\n", "    scaler.update()\n    model.eval()\n", "mode-left"),
    row("y06", "generate switches gradients off for everyone", "seq2seq", "plain",
        "memory, tokens = self.encode(source), start",
        "torch.set_grad_enabled(False)\n        memory, tokens = self.encode(source), start",
        "state-left", also=(("    @torch.no_grad()\n", ""),)),
    row("y07", "generate freezes the parameters", "decoder", "rotary",
        GENERATE, f"        self.requires_grad_(False)\n{GENERATE}", "state-left"),
    row("y08", "a function that keeps its module through a copy", "decoder", "rotary",
        "        self.dropout = nn.Dropout(config.dropout)\n",
        "        self.dropout = nn.Dropout(config.dropout)\n        inner = self.feedforward\n"
        "        self.transform = lambda x: inner(x)\n",
        "closure-kept",
        also=(("self.dropout(self.feedforward(self.feed", "self.dropout(self.transform(self.feed"),)),
    row("y09", "head tied by its data", "decoder", "rotary",
        "self.head.weight = self.embedding.weight", "self.head.weight.data = self.embedding.weight.data",
        "tie-by-data", "tie"),
    row("y10", "a norm as a default argument", "decoder", "rotary",
        BUILT, BUILT.replace("config: Config)", "config: Config, last: nn.Module = Norm(48))"),
        "builds-shared", also=(("self.norm = Norm(config.width)", "self.norm = last"),)),
    row("y11", "positions made in the first pass", "encoder", "plain",
        "        x = self.dropout(x + self.table[: x.size(1)])",
        "        if not hasattr(self, 'learned'):\n"
        "            self.learned = nn.Parameter(torch.randn(1024, x.size(2), dtype=x.dtype))\n"
        "        x = self.dropout(x + self.learned[: x.size(1)])",
        "lazy-state", "unregistered"),
    row("y12", "padding mask in place of the causal mask", "decoder", "rotary",
        "mask = mask & padding[:, None, None, :]", "mask = padding[:, None, None, :].expand(-1, -1, length, -1)",
        "mask-replaced"),
    row("y13", "padding hidden in evaluation only", "decoder", "rotary",
        "        if padding is not None:\n            mask", "        if padding is not None and not self.training:\n"
        "            mask", "mask-one-path"),
    row("y14", "masks of source and target swapped", "seq2seq", "plain",
        "return self.decode(memory, target, source_padding, target_padding)",
        "return self.decode(memory, target, target_padding, source_padding)", "mask-swapped"),
    row("y15", "a long prompt cropped to its beginning", "decoder", "learned", GENERATE, CROPPED, "crop-first"),
    row("y16", "positions wrap around beyond the context", "decoder", "learned",
        TABLE, "            x = x + self.position(positions % config.max_length)", "position-reused"),
    row("y17", "the last place of the context refused", "decoder", "learned",
        GENERATE, f"        assert tokens.size(1) + count < self.config.max_length\n{GENERATE}", "context-edge"),
    row("y18", "learning rate negative before the end", "loop", "loop",
        RATE, "return width**-0.5 * min(WARMUP**-0.5 - step / 4000, step * WARMUP**-1.5)", "schedule-end"),
    row("y19", "learning rate zero from the middle on", "loop", "loop",
        RATE, "return width**-0.5 * min(step**-0.5, step * WARMUP**-1.5) * (step < 500)", "schedule-end"),
    row("y20", "learning rate falls off a cliff after the warm-up", "loop", "loop",
        RATE, "return width**-0.5 * (step * WARMUP**-1.5 if step <= WARMUP else 0.1 * step**-0.5)",
        "schedule-handover"),
    row("y21", "padding_idx on the positions", "decoder", "learned",
        "self.position = nn.Embedding(config.max_length, config.width)",
        "self.position = nn.Embedding(config.max_length, config.width, padding_idx=0)", "padding-row-read"),
    row("y22", "padding row overwritten by the initialisation", "decoder", "rotary",
        "self.embedding = nn.Embedding(config.vocab, config.width)",
        "self.embedding = nn.Embedding(config.vocab, config.width, padding_idx=0)", "padding-row-filled"),
]  # fmt: skip
