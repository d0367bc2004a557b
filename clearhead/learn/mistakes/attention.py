"""How attention usually goes wrong."""

from clearhead.learn.exercise import Mistake

SOFTMAX = "scores.softmax(-1) @ v"
SCALE = " / math.sqrt(q.size(-1))"
MAXIMUM = "scores 800 give NaN: subtract each row's maximum before exp, as softmax does"

MISTAKES = (
    Mistake(
        "scale-missing",
        "attention",
        "the scores are not divided by √d, so wider heads look more sharply",
        changes=((SCALE, ""),),
        where=r"@|matmul|einsum|bmm",
    ),
    Mistake(
        "scale-width",
        "attention",
        "divided by d, not by its root",
        changes=((SCALE, " / q.size(-1)"),),
        where=r"/|size|shape",
    ),
    Mistake(
        "scale-multiplied",
        "attention",
        "multiplied by √d instead of divided",
        changes=((SCALE, " * math.sqrt(q.size(-1))"),),
        where=r"sqrt|\*\* ?0?\.5",
    ),
    Mistake(
        "scale-other-size",
        "attention",
        "divided by the root of another size than d, the last one of q",
        changes=((SCALE, " / math.sqrt(q.size(-2))"),),
        where=r"sqrt|size|shape",
    ),
    Mistake(
        "scale-other-size",
        "attention",
        "divided by the root of another size than d, the last one of q",
        changes=((SCALE, " / math.sqrt(k.size(-2))"),),
        where=r"sqrt|size|shape",
    ),
    Mistake(
        "scale-other-size",
        "attention",
        "divided by the root of another size than d: one head's width, not all heads' together",
        changes=((SCALE, " / math.sqrt(q.size(1) * q.size(-1))"),),
        where=r"sqrt|size|shape",
    ),
    Mistake(
        "values-summed",
        "attention",
        "every query gets the sum of all values: in the einsum, weights and values name their keys by two letters",
        changes=((SOFTMAX, 'torch.einsum("bhst,bhud->bhsd", scores.softmax(-1), v)'),),
        where=r"einsum|sum",
    ),
    *(
        Mistake(
            "scores-clamped",
            "attention",
            "the scores were clamped: large ones are no longer told apart, and the softmax needs no help",
            changes=((SOFTMAX, f"scores.clamp(-{most}, {most}).softmax(-1) @ v"),),
            where=r"clamp|clip|min|max",
        )
        for most in (10, 20, 30, 50, 80, 100)
    ),
    Mistake(
        "scale-after-softmax",
        "attention",
        "the scale came after the softmax: the weights of a query no longer sum to one",
        changes=((SCALE, ""), (SOFTMAX, "scores.softmax(-1) / math.sqrt(q.size(-1)) @ v")),
        where=r"sqrt|softmax",
    ),
    Mistake(  # where none of those below agrees: told by the rows alone
        "softmax-axis",
        "attention",
        "the weights of a query do not sum to one: the softmax must run over the keys, the last dimension",
        where=r"[sS]oftmax|sum\(",
    ),
    Mistake(
        "softmax-axis",
        "attention",
        "the softmax ran over the queries: columns, not rows, sum to one",
        changes=((SOFTMAX, "scores.softmax(-2) @ v"),),
        where=r"[sS]oftmax|sum\(",
    ),
    Mistake(
        "softmax-axis",
        "attention",
        "the softmax ran over the heads; the weights over the keys must sum to one",
        changes=((SOFTMAX, "scores.softmax(1) @ v"),),
        where=r"[sS]oftmax|sum\(",
    ),
    Mistake(
        "softmax-axis",
        "attention",
        "the softmax ran over the batch; the weights over the keys must sum to one",
        changes=((SOFTMAX, "scores.softmax(0) @ v"),),
        where=r"[sS]oftmax|sum\(",
    ),
    Mistake(
        "softmax-missing",
        "attention",
        "the scores themselves mix the values: no softmax makes weights of them",
        changes=((SOFTMAX, "scores @ v"),),
        where=r"@ ?v|matmul|einsum",
    ),
    Mistake(
        "softmax-missing",
        "attention",
        "the scores were divided by their sum, which is no softmax: weights are positive, exp(score) over their sum",
        changes=((SOFTMAX, "scores / scores.sum(-1, keepdim=True) @ v"),),
        where=r"sum\(",
    ),
    Mistake(
        "softmax-overflow",
        "attention",
        MAXIMUM,
        changes=((SOFTMAX, "(scores.exp() / scores.exp().sum(-1, keepdim=True)) @ v"),),
        where=r"exp\(",
    ),
    Mistake(
        "softmax-overflow",
        "attention",
        "one maximum for all rows: a row far below it has only zeros; subtract each row's own",
        text="""def attention(q, k, v):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    powers = (scores - scores.max()).exp()
    return powers / powers.sum(-1, keepdim=True) @ v
""",
        where=r"max\(|amax",
    ),
    Mistake(
        "keys-reshaped",
        "attention",
        "k was reshaped, not transposed: the features of one token went to another",
        changes=(("k.transpose(-2, -1)", "k.reshape(*k.shape[:2], k.size(3), k.size(2))"),),
        where=r"view|reshape",
    ),
    Mistake(
        "keys-not-transposed",
        "attention",
        "q times k needs k with its last two dimensions exchanged",
        changes=(("k.transpose(-2, -1)", "k"),),
        where=r"@|matmul",
    ),
    Mistake(
        "detached",
        "attention",
        "the values are right, but nothing flows back through the weights: they were detached",
        changes=((SOFTMAX, "scores.softmax(-1).detach() @ v"),),
        where=r"detach|data|no_grad|tensor\(",
    ),
    Mistake(
        "detached",
        "attention",
        "the values are right, but no gradient comes back at all: the result was cut off from its arguments",
        changes=((SOFTMAX, "(scores.softmax(-1) @ v).detach()"),),
        where=r"detach|data|no_grad|tensor\(",
    ),
    Mistake(
        "detached",
        "attention",
        "the values are right, but q has no gradient: it was detached",
        changes=(("scores = q @", "scores = q.detach() @"),),
        where=r"detach|data|no_grad|tensor\(",
    ),
    Mistake(
        "detached",
        "attention",
        "the values are right, but k has no gradient: it was detached",
        changes=(("k.transpose", "k.detach().transpose"),),
        where=r"detach|data|no_grad|tensor\(",
    ),
    Mistake(
        "roles-swapped",
        "attention",
        "keys and values have changed places",
        text="""def attention(q, v, k):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ v
""",
        where=r"@|matmul|einsum",
    ),
    Mistake(
        "roles-swapped",
        "attention",
        "queries and keys have changed places: there is one result for each query",
        text="""def attention(q, k, v):
    scores = k @ q.transpose(-2, -1) / math.sqrt(q.size(-1))
    return scores.softmax(-1) @ v
""",
        where=r"@|matmul|einsum",
    ),
    Mistake(
        "weights-returned",
        "attention",
        "these are the weights; the values are still to be mixed by them",
        changes=((SOFTMAX, "scores.softmax(-1)"),),
        where=r"return",
    ),
    Mistake(
        "weights-returned",
        "attention",
        "a pair came back; return the mixed values alone, without the weights",
        changes=((SOFTMAX, "scores.softmax(-1) @ v, scores.softmax(-1)"),),
        where=r"return",
    ),
    Mistake(
        "causal-unasked",
        "attention",
        "later keys are hidden; here every query sees every key (masks come in exercise 5)",
        changes=(
            (
                SOFTMAX,
                "scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf).softmax(-1) @ v",
            ),
        ),
        where=r"tril|triu|causal",
    ),
    Mistake(
        "log-weights",
        "attention",
        "log_softmax gives logarithms of weights, which do not sum to one",
        changes=((SOFTMAX, "scores.log_softmax(-1) @ v"),),
        where=r"log_softmax",
    ),
    Mistake(
        "sigmoid",
        "attention",
        "a sigmoid weighs each key alone; the weights of a query must sum to one",
        changes=((SOFTMAX, "scores.sigmoid() @ v"),),
        where=r"sigmoid",
    ),
)
