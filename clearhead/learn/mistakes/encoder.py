"""How residuals, a layer and the encoder usually go wrong."""

from clearhead.learn.exercise import Mistake

RESIDUAL = "self.norm(x + self.dropout(sublayer(x)))"
ATTEND = "self.self_attention_residual(x, lambda x: self.self_attention(x, x, may_attend))"
FEED = "self.feed_forward_residual(x, self.feed_forward)"
LAYERS = "nn.ModuleList(EncoderLayer(width, heads, hidden, dropout) for _ in range(layers))"
MASK = "None if real is None else padding_mask(real)"
LOOP = "            x = layer(x, may_attend)\n"


def road(id: str, say: str, new: str, where: str = r"norm|dropout|sublayer") -> Mistake:
    return Mistake(id, "Residual", say, changes=((RESIDUAL, new),), where=where)


def layer(id: str, say: str, *changes: tuple[str, str], where: str = r"attention|feed_forward") -> Mistake:
    return Mistake(id, "EncoderLayer", say, changes=changes, where=where)


def stack(id: str, say: str, *changes: tuple[str, str], where: str = r"layer") -> Mistake:
    return Mistake(id, "Encoder", say, changes=changes, where=where)


MISTAKES = (
    road(
        "activation-unasked",
        "the sum was bent (as in a ResNet): the road around a sub-layer stays straight",
        "self.norm((x + self.dropout(sublayer(x))).relu())",
        r"relu|gelu",
    ),
    road(
        "activation-unasked",
        "the result was bent (as in a ResNet): the road around a sub-layer stays straight",
        "self.norm(x + self.dropout(sublayer(x))).relu()",
        r"relu|gelu",
    ),
    road(
        "norm-before",
        "the norm came before the sub-layer; in 2017 it comes last, over the sum",
        "x + self.dropout(sublayer(self.norm(x)))",
    ),
    road(
        "norm-before",
        "the norm came before the sub-layer, and the sum was not normalised",
        "self.norm(x) + self.dropout(sublayer(self.norm(x)))",
    ),
    road(
        "norm-inside",
        "only what the sub-layer made was normalised; the norm is over the sum",
        "x + self.norm(self.dropout(sublayer(x)))",
    ),
    road("norm-missing", "nothing is normalised", "x + self.dropout(sublayer(x))"),
    road("norm-twice", "x was normalised on the way in as well", "self.norm(x + self.dropout(sublayer(self.norm(x))))"),
    road(
        "residual-missing",
        "the road around the sub-layer is missing: a sub-layer that gives zero must leave norm(x)",
        "self.norm(self.dropout(sublayer(x)))",
    ),
    road("residual-twice", "x was added twice", "self.norm(x + x + self.dropout(sublayer(x)))"),
    road("residual-sign", "the sub-layer was subtracted", "self.norm(x - self.dropout(sublayer(x)))"),
    road("sublayer-unused", "the sub-layer is never called", "self.norm(x)"),
    road("sublayer-twice", "the sub-layer ran twice", "self.norm(x + self.dropout(sublayer(sublayer(x))))"),
    road(
        "dropout-in-eval",
        "dropout acts in evaluation too: functional dropout must be told self.training",
        "self.norm(x + nn.functional.dropout(sublayer(x), self.dropout.p))",
        r"dropout",
    ),
    road("dropout-missing", "dropout never acts", "self.norm(x + sublayer(x))"),
    road(
        "dropout-place",
        "dropout acts on the sum: it takes numbers of x away, and the road around is broken",
        "self.norm(self.dropout(x + sublayer(x)))",
        r"dropout",
    ),
    road(
        "dropout-place",
        "dropout acts after the norm; it belongs to what the sub-layer made",
        "self.dropout(self.norm(x + sublayer(x)))",
        r"dropout",
    ),
    road(
        "dropout-place",
        "dropout acts on what the sub-layer reads, not on what it made",
        "self.norm(x + sublayer(self.dropout(x)))",
        r"dropout",
    ),
    road(
        "dropout-place",
        "dropout acts on x, not on what the sub-layer made",
        "self.norm(self.dropout(x) + sublayer(x))",
        r"dropout",
    ),
    road(
        "detached",
        "no gradient goes around the sub-layer",
        "self.norm(x.detach() + self.dropout(sublayer(x)))",
        r"detach|data|no_grad",
    ),
    road(
        "detached",
        "no gradient goes through the sub-layer",
        "self.norm(x + self.dropout(sublayer(x)).detach())",
        r"detach|data|no_grad",
    ),
    road(
        "in-place",
        "the x that was given is changed; make a new tensor",
        "self.norm(x.data.add_(self.dropout(sublayer(x))))",
        r"\+=|_\(",
    ),
    layer(
        "mask-missing",
        "the layer's mask never reaches the attention",
        (ATTEND, ATTEND.replace(", may_attend", "")),
        where=r"self_attention\(",
    ),
    layer(
        "sublayers-swapped",
        "the feed-forward ran before the attention",
        (f"x = {ATTEND}", f"x = {FEED}"),
        (f"return {FEED}", f"return {ATTEND}"),
    ),
    layer(
        "residual-missing",
        "the attention has no residual around it",
        (ATTEND, "self.self_attention(x, x, may_attend)"),
        where=r"self_attention\(",
    ),
    layer(
        "residual-missing",
        "the attention has a norm but no road around it",
        (ATTEND, "self.self_attention_residual.norm(self.self_attention(x, x, may_attend))"),
        where=r"self_attention\(",
    ),
    layer(
        "residual-missing",
        "the feed-forward has no residual around it",
        (f"return {FEED}", "return self.feed_forward(x)"),
        where=r"feed_forward\(",
    ),
    layer(
        "sublayer-missing",
        "the feed-forward is left out",
        (f"return {FEED}", "return x"),
    ),
    layer(
        "sublayer-missing",
        "the attention is left out: no token sees another",
        (f"x = {ATTEND}", "x = x"),
    ),
    layer(
        "sublayers-parallel",
        "the feed-forward reads what the layer was given, not what the attention made of it",
        (f"x = {ATTEND}", f"y = {ATTEND}"),
        (f"return {FEED}", "return self.feed_forward_residual(y, lambda y: self.feed_forward(x))"),
    ),
    layer(
        "norm-shared",
        "one residual, and so one norm, serves both sub-layers",
        (f"return {FEED}", "return self.self_attention_residual(x, self.feed_forward)"),
        where=r"residual",
    ),
    layer(
        "norm-shared",
        "one residual, and so one norm, serves both sub-layers",
        (ATTEND, "self.feed_forward_residual(x, lambda x: self.self_attention(x, x, may_attend))"),
        where=r"residual",
    ),
    layer(
        "norms-swapped",
        "the two residuals changed places",
        (ATTEND, "self.feed_forward_residual(x, lambda x: self.self_attention(x, x, may_attend))"),
        (f"return {FEED}", "return self.self_attention_residual(x, self.feed_forward)"),
        where=r"residual",
    ),
    stack(
        "shared-layers",
        "one layer is used again and again: all of them have the same parameters",
        (LAYERS, "nn.ModuleList([EncoderLayer(width, heads, hidden, dropout)] * layers)"),
        where=r"EncoderLayer\(",
    ),
    stack(
        "unregistered",
        "a plain list: the layers' parameters are not in the state dict, and would not be trained; use nn.ModuleList",
        (LAYERS, "[EncoderLayer(width, heads, hidden, dropout) for _ in range(layers)]"),
        where=r"\[",
    ),
    stack(
        "identical-layers",
        "all layers start as copies of one: make each anew",
        (
            LAYERS,
            "nn.ModuleList(EncoderLayer(width, heads, hidden, dropout) for _ in range(layers))\n"
            "        for layer in self.layers:\n"
            "            layer.load_state_dict(self.layers[0].state_dict())",
        ),
        where=r"copy|EncoderLayer\(",
    ),
    stack("padding-ignored", "the padding is never hidden", (MASK, "None"), where=r"layer\("),
    stack(
        "mask-inverted",
        "the mask is the wrong way round: real tokens are hidden and padding is seen",
        (MASK, "None if real is None else padding_mask(~real)"),
        where=r"~|padding_mask",
    ),
    stack(
        "mask-broadcast",
        "real (B, S) went to the attention as it is; padding_mask gives it the dimensions it needs",
        (MASK, "real"),
        where=r"layer\(",
    ),
    stack(
        "padding-both-sides",
        "padding was hidden as a query too: a padded token then sees nothing, is 0/0, and spreads in the next layer",
        (MASK, "None if real is None else padding_mask(real) & real[:, None, :, None]"),
        where=r"&|\*",
    ),
    stack(
        "padding-axis",
        "padding was hidden as a query, not as a key",
        (MASK, "None if real is None else real[:, None, :, None]"),
        where=r"None, :",
    ),
    stack(
        "direction",
        "a causal mask got in: an encoder's tokens see each other both ways",
        (MASK, "causal_mask(x.size(1)) if real is None else padding_mask(real) & causal_mask(x.size(1))"),
        where=r"causal|tril",
    ),
    stack(
        "mask-first-layer",
        "the padding is hidden from the first layer only",
        (LOOP, LOOP + "            may_attend = None\n"),
    ),
    stack("none-crashes", "real may be None: then all tokens are real", (MASK, "padding_mask(real)"), where=r"mask"),
    stack(
        "layers-parallel",
        "every layer read the input; each should read what the one before it made",
        (LOOP, "            out = layer(x, may_attend)\n"),
        ("        return x", "        return out"),
        where=r"layer\(",
    ),
    stack(
        "layers-reversed",
        "the layers ran in the wrong order, the last one first",
        ("in self.layers", "in reversed(self.layers)"),
    ),
    stack("layer-left-out", "the last layer never ran", ("in self.layers", "in self.layers[:-1]")),
    stack("layer-left-out", "the first layer never ran", ("in self.layers", "in self.layers[1:]")),
    stack("layer-left-out", "only the first layer ran", ("in self.layers", "in self.layers[:1]")),
    stack(
        "layers-repeated",
        "the first layer ran every time; the others never",
        (LOOP, "            x = self.layers[0](x, may_attend)\n"),
        where=r"\[0\]",
    ),
    stack(
        "layer-residual",
        "the input of each layer was added once more: the residuals are inside the layers",
        (LOOP, "            x = x + layer(x, may_attend)\n"),
        where=r"layer\(",
    ),
)
