"""Bugs between the lines: residuals that start elsewhere, norms that are none, generation that keeps something."""

from clearhead.doctor.mutants.lasting import row

ATTENDED = "x = x + self.dropout(self.attention(self.attention_norm(x), angles, mask, bias, cache))"
FED = "return x + self.dropout(self.feedforward(self.feedforward_norm(x)))"
NORM = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain"
CACHE = "        cache = Cache(self.config.window)\n"

MUTANTS = [
    row("z10", "the residual of the feed-forward starts before attention", "decoder", "rotary",
        ATTENDED, ATTENDED.replace("x = x +", "y = x +"), "residual-missing",
        also=((FED, FED.replace("norm(x)", "norm(y)")),)),
    row("z11", "the residual of attention starts from the normalised input", "decoder", "rotary",
        ATTENDED, f"x = self.attention_norm(x)\n        {ATTENDED.replace('self.attention_norm(x)', 'x')}",
        "residual-missing"),
    row("z12", "the norm divides by the mean square, not by its root", "decoder", "rotary",
        NORM, "x / (x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain", "norm-epsilon"),
    row("z13", "the norm sums instead of averaging", "decoder", "rotary",
        NORM, NORM.replace("mean(", "sum("), "norm-epsilon"),
    row("z14", "one token more than asked for", "decoder", "rotary",
        "for _ in range(count):", "for _ in range(count + 1):", "generate-step"),
    row("z15", "generation keeps its cache for the next prompt", "decoder", "rotary",
        CACHE, "        cache = self.__dict__.setdefault(\"cache\", Cache(self.config.window))\n", "cache-shared"),
    row("z16", "generation writes into the prompt", "decoder", "rotary",
        CACHE, "        tokens[:, :1] = tokens[:, :1].clamp(max=3)\n" + CACHE, "generate-step"),
]  # fmt: skip
