"""Bugs in how sub-layers are put together: no activation, no residual, a causal mask where the source is read."""

from clearhead.doctor.mutants.lasting import row

SOURCE = "mask = hide(~padding[:, None, None, :], x.dtype) if padding is not None else None"
CROSS = "source_mask = hide(~source_padding[:, None, None, :], x.dtype) if source_padding is not None else None"
READ = "        x = x + self.dropout(cross(self.norms[1](x), memory_keys, memory_values, source_mask))"
FUTURE = "torch.ones({queries}, {keys}, dtype=torch.bool).triu(1)"

MUTANTS = [
    row("z01", "no activation in the feed-forward", "decoder", "rotary",
        "return self.down(F.gelu(self.up(x)))", "return self.down(self.up(x))", "activation-missing"),
    row("z02", "activation after the second map", "encoder", "plain",
        "self.down(F.relu(self.up(x)))", "F.relu(self.down(self.up(x)))", "activation-missing"),
    row("z03", "no residual around the feed-forward", "decoder", "rotary",
        "return x + self.dropout(self.feedforward(", "return self.dropout(self.feedforward(", "residual-missing"),
    row("z04", "no residual around attention", "encoder", "plain",
        "self.attention_norm(x + self.dropout(attended))", "self.attention_norm(self.dropout(attended))",
        "residual-missing"),
    row("z05", "no residual around cross-attention", "seq2seq", "plain",
        READ, READ.replace("x = x + ", "x = "), "residual-missing"),
    row("z06", "no residual in the encoder", "seq2seq", "plain",
        "        x = x + self.dropout(attention(y, keys, values, mask))\n        return",
        "        x = self.dropout(attention(y, keys, values, mask))\n        return", "residual-missing"),
    row("z07", "the encoder is masked causally", "seq2seq", "plain",
        SOURCE, f"mask = hide({FUTURE.format(queries='source.size(1)', keys='source.size(1)')}, x.dtype)",
        "direction", "source-causal"),
    row("z08", "cross-attention is masked causally", "seq2seq", "plain",
        CROSS, f"source_mask = hide({FUTURE.format(queries='target.size(1)', keys='memory.size(1)')}, x.dtype)",
        "source-causal"),
    row("z09", "only the last layer looks at the source", "seq2seq", "plain",
        READ, READ.replace("        x = x", "        if self.number:\n            x = x"),
        "cross-missing", "unused-parameters"),
]  # fmt: skip
