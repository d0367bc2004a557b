"""What is likely wrong where no mistake that the exercise knows agrees: from the error, or from when it goes wrong."""

import re

from clearhead.learn.exercise import Misfit
from clearhead.learn.verdict import Likely

NO_INPUT = Likely("input", "your code waits for input(), and there is nobody to type: leave it out")
# a pattern of the error, as Python prints its last line, and what is behind it; the first that fits
ERRORS = {
    r"Boolean value of Tensor": Likely(
        "mask-truth", "`if` and `and` ask whether a whole tensor is true: `is not None` asks whether there is one"
    ),
    r"EOFError: EOF when reading a line": NO_INPUT,
    r"'Tensor' object is not callable": Likely(
        "sublayer-called",
        "a tensor was given where a function is wanted: hand the sub-layer itself on, or `lambda x: …`, and let it be "
        "called there",
    ),
    r"ValueError: .* is not in list": Likely(
        "eos-absent", "`index` fails where nothing is found: a row may reach `longest` without having said eos"
    ),
    r"ZeroDivisionError.*negative power": Likely("warmup-zero", "step 0 has no rate: steps are counted from 1"),
    r"'(Softmax|LogSoftmax|ReLU|Dropout|Linear|Embedding)'|must be Tensor, not (Softmax|ReLU|Dropout|Linear)": Likely(
        "module-not-called",
        "a module was made and never called: nn.Softmax(dim=…)(x), or the function, torch.softmax(x, dim=…)",
    ),
    r"must be Tensor, not (float|int)": Likely(
        "number-for-tensor", "this function of torch takes a tensor, and got a number: math has the same for numbers"
    ),
    r"view size is not compatible": Likely(
        "not-contiguous",
        "after a transpose the numbers do not lie as a view would read them: use reshape or flatten, or contiguous()",
    ),
    r"does not require grad|does not have a grad_fn": Likely(
        "detached", "something on the way is cut off from the graph: .data, .detach, .item, no_grad?"
    ),
    r"in-?place operation": Likely(
        "arguments-changed", "a tensor that is still needed was changed in place: make a new one"
    ),
    r"same dtype|scalar type|must have the same": Likely(
        "precision-mixed",
        "the check works in 64 bits, and a tensor made here has 32: give it the kind of the others, with .to(x) or "
        "dtype=x.dtype",
    ),
    r"(RuntimeError|IndexError).*(size|shape|dimension)": Likely(
        "shape-mismatch", "two shapes do not fit in this line: print them, and compare with the letters above"
    ),
}
SURE = {"mask-truth", "input"}  # errors that nothing else raises: they come before mistakes that merely fail, too
KINDS = {
    "gradients": Likely("detached", "something on the way is cut off from the graph: .data, .detach, .item, no_grad?"),
    "again": Likely("stale-state", "something is remembered from one call to the next"),
    "arguments": Likely(
        "arguments-changed",
        "an operation in place (`x -= …`, `x.mul_(…)`, `x[…] = …`) changes the tensor that was given: make a new one",
    ),
}
ONLY = {
    "B = 1": Likely("batch-coupled", "rows of the batch mix: a dimension is taken for the batch"),
    "S = T": Likely("axis-swapped", "queries and keys are mistaken for each other somewhere"),
    "nothing is padded": Likely("padding-ignored", "the padding gets in somewhere"),
}
OVERFLOW = Likely(
    "softmax-overflow",
    "right for small numbers: the exponential of hundreds is infinite, and of hundreds below zero it is 0; take each "
    "row's own largest number away first, as torch.softmax and log_softmax do",
)
# part and situation: what is behind it where everything before was right, and no known mistake agrees
SITUATIONS = {
    ("attention", "scores of hundreds"): OVERFLOW,
    ("attention", "scores of hundreds, in float32"): OVERFLOW,
    ("masked_attention", "scores of hundreds"): OVERFLOW,
    ("MultiHeadAttention", "scores of hundreds"): OVERFLOW,
    ("loss", "logits of hundreds"): OVERFLOW,
    ("masked_attention", "a query of zeros"): Likely(
        "zero-taken-for-hidden",
        "scores that are exactly zero are taken for hidden: hide by the mask, not by the number",
    ),
    ("masked_attention", "all scores far below zero"): Likely(
        "mask-value", "a hidden score must be below every score that may be seen, however low these are: −∞"
    ),
    **{
        (part, "hidden keys of large scores"): Likely(
            "mask-value", "hidden keys get in where their scores are large: a hidden score is −∞ before the softmax"
        )
        for part in ("masked_attention", "MultiHeadAttention")
    },
    ("MultiHeadAttention", "twice, on different sequences"): Likely(
        "stale-state", "the first call is right, the second is not: something is kept between them"
    ),
    **{
        (part, "then another batch, without padding"): Likely(
            "stale-state", "the first batch is right, the next is not: something is kept between them"
        )
        for part in ("Encoder", "Decoder")
    },
    ("LayerNorm", "variance about 1e-6"): Likely(
        "norm-epsilon", "right but where the variance is small, where ε speaks: once, under the root, 1e-5"
    ),
    ("LayerNorm", "one token of equal features"): Likely(
        "norm-epsilon", "right but where the variance is zero, where only ε is left under the root"
    ),
    ("loss", "with smoothing"): Likely(
        "label-smoothing",
        "right without smoothing; with it the label keeps 1 − ε, and ε is spread evenly over all V tokens",
    ),
    ("update", "one update, a long gradient"): Likely(
        "clip-other-length", "right for a short gradient; a long one is cut to length max_norm before the step"
    ),
    ("update", "three updates by an optimizer with momentum"): Likely(
        "optimizer-bypassed", "right for plain gradient descent only: the step is the optimizer's own, with its memory"
    ),
    ("greedy", "at most 3 tokens"): Likely(
        "longest-off", "right where rows end by themselves; `longest` counts the tokens that are written, without bos"
    ),
    ("step", "step after step"): Likely(
        "cache-contents",
        "the first step is right, a later one is not: what earlier steps left is missing, or not in its place",
    ),
    ("step", "in turns with another request"): Likely(
        "cache-shared", "one request at a time is right, two in turns are not: something is kept outside of `cache`"
    ),
}
PARAMETERS = Likely(
    "weights-mismatch",
    "the module has other parameters than were given: their names and shapes stay, so that weights can be copied",
)


def guess(kind: str, only: str, error: BaseException | None, place: tuple[str, str] = ("", "")) -> tuple[Likely, ...]:
    """A cause by its pattern, or none; `place` is the part, and the situation in which it was wrong first."""
    if isinstance(error, Misfit):
        return (PARAMETERS,) if error.parameters else ()
    if kind == "runs":
        said = f"{type(error).__name__}: {error}"
        return tuple(likely for pattern, likely in ERRORS.items() if re.search(pattern, said, re.DOTALL))[:1]
    found = KINDS.get(kind) or SITUATIONS.get(place) or ONLY.get(only)
    return () if found is None else (found,)
