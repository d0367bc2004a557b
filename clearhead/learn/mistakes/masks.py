"""How masks usually go wrong."""

from clearhead.learn.exercise import Mistake

FILL = "scores.masked_fill(~may_attend, -math.inf)"
TRIL = "torch.ones(length, length, dtype=torch.bool).tril()"
REAL = "real[:, None, None, :]"
SOFTMAX = "scores.softmax(-1) @ v"
BEFORE = """    if may_attend is not None:
        # before the softmax, so that what is left still sums to one
        scores = scores.masked_fill(~may_attend, -math.inf)
"""
NONE = ((BEFORE, ""),)


def instead(id: str, say: str, new: str, where: str = r"masked_fill|where|inf|mask") -> Mistake:
    return Mistake(id, "masked_attention", say, changes=((FILL, new),), where=where)


MISTAKES = (
    Mistake(
        "mask-diagonal",
        "causal_mask",
        "the diagonal is one too far: position 0 sees token 1, which it should write",
        changes=((".tril()", ".tril(1)"),),
        where=r"tril|triu|diagonal|<|>",
    ),
    Mistake(
        "mask-diagonal",
        "causal_mask",
        "the diagonal is hidden: a position may look at itself, and position 0 would see nothing",
        changes=((".tril()", ".tril(-1)"),),
        where=r"tril|triu|diagonal|<|>",
    ),
    Mistake(
        "mask-inverted",
        "causal_mask",
        "the mask is the wrong way round: True means may look",
        changes=((TRIL, "~" + TRIL),),
        where=r"tril|triu|<|>|~",
    ),
    Mistake(
        "mask-inverted",
        "causal_mask",
        "the mask shows the future and hides the past: rows are queries, columns are keys",
        changes=((".tril()", ".triu()"),),
        where=r"tril|triu|<|>",
    ),
    Mistake(
        "mask-not-boolean",
        "causal_mask",
        "the mask holds numbers; it should be boolean, True = may look",
        changes=((", dtype=torch.bool", ""),),
        where=r"ones|tril",
    ),
    Mistake(
        "mask-not-boolean",
        "causal_mask",
        "this is a mask to be added to scores; here a mask is boolean, True = may look",
        changes=((TRIL, "torch.full((length, length), -math.inf).triu(1)"),),
        where=r"inf|full",
    ),
    Mistake(
        "mask-empty",
        "causal_mask",
        "every position may look everywhere: nothing hides the future",
        changes=((".tril()", ""),),
        where=r"ones",
    ),
    Mistake(
        "mask-self-only",
        "causal_mask",
        "each position sees only itself, not what came before it",
        changes=((TRIL, "torch.eye(length, dtype=torch.bool)"),),
        where=r"eye",
    ),
    Mistake(
        "padding-axis",
        "padding_mask",
        "this hides queries, not keys; it shows only when S and T differ, or by its values",
        changes=((REAL, "real[:, None, :, None]"),),
        where=r"None|unsqueeze|view|reshape",
    ),
    Mistake(
        "mask-inverted",
        "padding_mask",
        "the mask is the wrong way round: True means may look, and real tokens may be looked at",
        changes=((REAL, "~" + REAL),),
        where=r"~|not|==|None",
    ),
    Mistake(
        "mask-broadcast",
        "padding_mask",
        "the rows of the batch would be taken for queries: (B, T) needs dimensions for heads and queries in between",
        changes=((REAL, "real"),),
        where=r"return",
    ),
    Mistake(
        "mask-broadcast",
        "padding_mask",
        "the rows of the batch would be taken for heads: put the new dimensions between B and T",
        changes=((REAL, "real[:, None, :]"),),
        where=r"None|unsqueeze|view|reshape",
    ),
    Mistake(
        "mask-broadcast",
        "padding_mask",
        "the rows of the batch would be taken for queries: put the new dimensions between B and T",
        changes=((REAL, "real[None, None]"),),
        where=r"None|unsqueeze|view|reshape",
    ),
    Mistake(
        "first-row-for-all",
        "padding_mask",
        "the first row's padding hides tokens of every row",
        changes=((REAL, "real[:1, None, None, :].expand(len(real), 1, 1, -1)"),),
        where=r"0|:1",
    ),
    Mistake(
        "first-row-for-all",
        "padding_mask",
        "one row's padding hides tokens of every row",
        changes=((REAL, "real.all(0)[None, None, None, :]"),),
        where=r"all|any",
    ),
    Mistake(
        "mask-not-boolean",
        "padding_mask",
        "the mask holds numbers; it should be boolean, True = may look",
        changes=((REAL, REAL + ".float()"),),
        where=r"float|int|long",
    ),
    Mistake(
        "padding-both-sides",
        "padding_mask",
        "padding was hidden as a key and also as a query: then a padded query sees nothing at all",
        changes=((REAL, "real[:, None, :, None] & real[:, None, None, :]"),),
        where=r"&|\*",
    ),
    Mistake(
        "padding-counted",
        "padding_mask",
        "the real tokens were counted, and as many shown from the left: padding may stand anywhere",
        changes=((REAL, "(torch.arange(real.size(1)) < real.sum(1, keepdim=True))[:, None, None, :]"),),
        where=r"sum|arange|<",
    ),
    Mistake(
        "mask-missing",
        "masked_attention",
        "the mask is never used",
        changes=NONE,
        where=r"softmax",
    ),
    instead(
        "mask-inverted",
        "the mask is the wrong way round: what may be looked at is hidden",
        "scores.masked_fill(may_attend, -1e9)",
    ),
    instead(
        "mask-inverted",
        "the mask is the wrong way round: what may be looked at is hidden",
        "scores.masked_fill(may_attend, -math.inf)",
    ),
    Mistake(
        "mask-inverted",
        "masked_attention",
        "the mask is the wrong way round: torch's fused attention, too, reads True as may look",
        text="""def masked_attention(q, k, v, may_attend=None):
    hidden = None if may_attend is None else ~may_attend
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
""",
        where=r"~|logical_not|== ?(0|False)",
    ),
    instead(
        "mask-value",
        "a score near 0 hides nothing, for e⁰ is 1: a hidden score must be −∞ (or very far below zero)",
        "scores.masked_fill(~may_attend, 1e-9)",
    ),
    instead(
        "mask-value",
        "a score near 0 hides nothing, for e⁰ is 1: a hidden score must be −∞ (or very far below zero)",
        "scores.masked_fill(~may_attend, -1e-9)",
    ),
    instead(
        "mask-value",
        "a score of 0 hides nothing, since exp(0) is 1: it must be −∞",
        "scores.masked_fill(~may_attend, 0.0)",
    ),
    instead(
        "mask-value",
        "scores times the mask leaves zeros, and exp(0) is 1: a hidden score must be −∞",
        "scores * may_attend",
    ),
    instead("mask-value", "the mask was added as 0 and 1: a hidden score must be −∞", "scores + may_attend"),
    instead("mask-value", "hidden scores are +∞: they take everything", "scores.masked_fill(~may_attend, math.inf)"),
    instead(
        "mask-value",
        "−1 hides little: a hidden score must be −∞ (or very far below zero)",
        "scores.masked_fill(~may_attend, -1.0)",
    ),
    instead("mask-value", "−100 hides only from small scores: use −∞", "scores.masked_fill(~may_attend, -100.0)"),
    instead(
        "mask-value",
        "subtracting a constant hides only from small scores: set hidden scores to −∞",
        "scores - 100.0 * ~may_attend",
    ),
    Mistake(
        "mask-after-softmax",
        "masked_attention",
        "masked after the softmax: the weights that are left no longer sum to one",
        changes=(*NONE, (SOFTMAX, "(scores.softmax(-1) * (1 if may_attend is None else may_attend)) @ v")),
        where=r"softmax",
    ),
    Mistake(
        "mask-after-softmax",
        "masked_attention",
        "masked after the softmax and divided by what is left: where hidden scores are large that is 0/0",
        changes=(
            *NONE,
            (SOFTMAX, "torch.nn.functional.normalize(scores.softmax(-1) * SEEN, p=1, dim=-1, eps=0.0) @ v"),
            ("SEEN", "(1 if may_attend is None else may_attend)"),
        ),
        where=r"/|sum|softmax",
    ),
    Mistake(
        "none-crashes",
        "masked_attention",
        "may_attend may be None: then every query may look at every key",
        changes=((BEFORE, "    scores = scores.masked_fill(~may_attend, -math.inf)\n"),),
        where=r"may_attend",
    ),
    Mistake(
        "mask-in-place",
        "masked_attention",
        "the mask that was given is changed; make a new one",
        changes=((FILL, "scores.masked_fill(may_attend.logical_not_(), -math.inf)"),),
        where=r"_\(",
    ),
    Mistake(  # where none of those below agrees: told by the rows alone
        "softmax-axis",
        "masked_attention",
        "the weights of a query do not sum to one: the softmax must run over the keys, the last dimension",
        where=r"softmax",
    ),
    Mistake(
        "softmax-axis",
        "masked_attention",
        "the softmax ran over the queries: columns, not rows, sum to one",
        changes=((SOFTMAX, "scores.softmax(-2) @ v"),),
        where=r"softmax",
    ),
    Mistake(
        "scale-missing",
        "masked_attention",
        "the scores are not divided by √d",
        changes=((" / math.sqrt(q.size(-1))", ""),),
        where=r"@|matmul|einsum",
    ),
    Mistake(
        "softmax-overflow",
        "masked_attention",
        "the softmax overflows: subtract each row's maximum before exp, as softmax does",
        changes=((SOFTMAX, "(scores.exp() / scores.exp().sum(-1, keepdim=True)) @ v"),),
        where=r"exp\(",
    ),
    instead(
        "mask-first-row",
        "the first row's mask was used for all rows of the batch",
        "scores.masked_fill(~(may_attend[:1] if may_attend.dim() == 4 else may_attend), -math.inf)",
        r"\[0|\[:1",
    ),
    instead(
        "mask-broadcast",
        "a dimension was added to the mask: it broadcasts to (B, H, S, T) as it is given",
        "scores.masked_fill(~may_attend.unsqueeze(1), -math.inf)",
        r"unsqueeze|None",
    ),
    instead(
        "mask-broadcast",
        "a dimension was added to the mask: it broadcasts to (B, H, S, T) as it is given",
        "scores.masked_fill(~may_attend.unsqueeze(1), -1e9)",
        r"unsqueeze|None",
    ),
    instead(
        "mask-value", "−10000 hides only from scores that are not lower still", "scores.masked_fill(~may_attend, -1e4)"
    ),
    instead(
        "zero-taken-for-hidden",
        "scores that are exactly zero are taken for hidden: hide by the mask, not by the number",
        "(scores * may_attend).masked_fill(scores * may_attend == 0, -math.inf)",
    ),
    Mistake(
        "causal-unasked",
        "masked_attention",
        "None was taken for a causal mask: without a mask every query may look at every key",
        changes=(
            (
                BEFORE,
                "    hidden = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).triu(1)\n"
                "    scores = scores.masked_fill(hidden if may_attend is None else ~may_attend, -math.inf)\n",
            ),
        ),
        where=r"None|tril|triu",
    ),
    instead(
        "causal-unasked",
        "later keys are hidden even where the mask allows them",
        "scores.masked_fill(~(may_attend & torch.ones_like(scores, dtype=torch.bool).tril()), -math.inf)",
        "tril",
    ),
    Mistake(
        "mask-one-path",
        "masked_attention",
        "a mask of two dimensions, (S, S), is left out: only one of four is used",
        changes=(("if may_attend is not None:", "if may_attend is not None and may_attend.dim() == 4:"),),
        where=r"dim\(\)|ndim|shape",
    ),
    Mistake(
        "mask-one-path",
        "masked_attention",
        "a mask of four dimensions, the padding's, is left out: only one of two is used",
        changes=(("if may_attend is not None:", "if may_attend is not None and may_attend.dim() == 2:"),),
        where=r"dim\(\)|ndim|shape",
    ),
)
