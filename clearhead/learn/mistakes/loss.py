"""How shifting and the loss usually go wrong."""

from clearhead.learn.exercise import Mistake

SHIFT = "target[:, :-1], target[:, 1:]"
LOG = "logits.log_softmax(-1)"
LOSSES = "losses = -((1 - smoothing) * right + smoothing * log_p.mean(-1))"
MEAN = "losses[labels != pad].mean()"
CE = r"cross_entropy|softmax|log"


def shifted(id: str, say: str, new: str) -> Mistake:
    return Mistake(id, "shift", say, changes=((SHIFT, new),), where=r"return|target")


def logs(id: str, say: str, new: str) -> Mistake:
    return Mistake(id, "loss", say, changes=((LOG, new),), where=CE)


def losses(id: str, say: str, new: str, where: str = r"smooth") -> Mistake:
    return Mistake(id, "loss", say, changes=((LOSSES, f"losses = {new}"),), where=where)


def mean(id: str, say: str, new: str, where: str = r"mean|sum|pad") -> Mistake:
    return Mistake(id, "loss", say, changes=((MEAN, new),), where=where)


MISTAKES = (
    shifted(
        "labels-unshifted",
        "the labels are the tokens that were read: the model would learn to repeat its input",
        "target[:, :-1], target[:, :-1]",
    ),
    shifted(
        "labels-unshifted",
        "inputs and labels both begin at the second token: nothing is left to predict",
        "target[:, 1:], target[:, 1:]",
    ),
    shifted(
        "labels-backwards",
        "shifted the wrong way: each label is the token before, which the model has just read",
        "target[:, 1:], target[:, :-1]",
    ),
    shifted(
        "labels-rolled",
        "rolled: the last label is the first token again",
        "target, target.roll(-1, 1)",
    ),
    shifted(
        "labels-rolled",
        "rolled, so that the start token stands among the labels",
        "target[:, :-1], target.roll(-1, 1)[:, 1:]",
    ),
    shifted(
        "shift-not-cut",
        "both still have all S + 1 tokens: the inputs lose the last one, the labels the first",
        "target, target",
    ),
    shifted(
        "shift-not-cut",
        "the inputs still have all S + 1 tokens: after the last one there is nothing to say",
        "target, target[:, 1:]",
    ),
    shifted("shift-axis", "cut along the batch, not along the sequence", "target[:-1], target[1:]"),
    shifted("shift-two", "shifted by two: one token in between is never asked for", "target[:, :-2], target[:, 2:]"),
    mean(
        "mean-over-padding",
        "the sum leaves the padding out, but it is divided by all places: more padding makes the loss smaller",
        "(losses * (labels != pad)).mean()",
    ),
    mean("padding-counted", "labels that are padding count like any other", "losses.mean()"),
    mean("ignored-token", "token 0 is left out; the padding is the token `pad`", "losses[labels != 0].mean()"),
    mean("ignored-token", "the padding is counted and everything else left out", "losses[labels == pad].mean()"),
    mean("loss-normaliser", "a sum over the tokens; it should be their mean", "losses[labels != pad].sum()"),
    mean(
        "loss-normaliser",
        "the sum is divided by the rows of the batch, not by the tokens that count",
        "losses[labels != pad].sum() / labels.size(0)",
    ),
    mean(
        "loss-normaliser",
        "the sum is divided by the length of the rows, not by the tokens that count",
        "losses[labels != pad].sum() / labels.size(1)",
    ),
    mean(
        "row-means",
        "a mean of each row, then the mean of these: tokens of short rows count more than others",
        "((losses * (labels != pad)).sum(1) / (labels != pad).sum(1)).mean()",
    ),
    mean("reduction-missing", "a loss for each token; one number is wanted, their mean", "losses * (labels != pad)"),
    mean(
        "detached",
        "a plain number has no gradient: return the tensor itself",
        "losses[labels != pad].mean().item()",
        r"item|float|detach|tensor",
    ),
    mean(
        "detached",
        "the graph is cut: no gradient reaches the logits",
        "losses[labels != pad].mean().detach()",
        r"item|float|detach|no_grad|tensor",
    ),
    mean("sign", "the sign is wrong: the likelier the label, the larger this loss", "-losses[labels != pad].mean()"),
    mean("exponential", "this is the perplexity, the exponential of the loss", "losses[labels != pad].mean().exp()"),
    logs(
        "softmax-twice",
        "a softmax runs before the one in the loss: probabilities are taken for logits",
        "logits.softmax(-1).log_softmax(-1)",
    ),
    logs("softmax-missing", "the logits are taken for logarithms of probabilities: no softmax ran", "logits"),
    logs("log-missing", "the probability of the label, not its logarithm", "logits.softmax(-1)"),
    logs("softmax-axis", "the softmax ran over the positions, not over the V tokens", "logits.log_softmax(1)"),
    logs("softmax-axis", "the softmax ran over the rows of the batch, not over the V tokens", "logits.log_softmax(0)"),
    logs(
        "softmax-overflow",
        "the logarithm of a softmax loses small probabilities: log_softmax does not",
        "logits.softmax(-1).log()",
    ),
    logs(
        "softmax-overflow",
        "exp of large logits overflows: log_softmax subtracts each row's maximum first",
        "(logits.exp() / logits.exp().sum(-1, keepdim=True)).log()",
    ),
    logs(
        "softmax-overflow",
        "a small number added before the logarithm bends small probabilities: use log_softmax",
        "(logits.softmax(-1) + 1e-9).log()",
    ),
    logs(
        "loss-mispaired",
        "logits were reshaped, not transposed, to bring V forward: they no longer belong to their labels",
        "logits.reshape(logits.size(0), logits.size(2), -1).transpose(1, 2).log_softmax(-1)",
    ),
    losses("smoothing-missing", "smoothing is never used", "-right"),
    losses(
        "label-smoothing",
        "ε was spread over the other V − 1 tokens; here every token gets ε/V, the right one too",
        "-((1 - smoothing) * right + smoothing * (log_p.sum(-1) - right) / (log_p.size(-1) - 1))",
    ),
    losses(
        "label-smoothing",
        "ε was spread over V − 2 tokens, without the label and the padding; here every token gets ε/V",
        "-((1 - smoothing) * right + smoothing * (log_p.sum(-1) - right - log_p[..., pad]) / (log_p.size(-1) - 2))",
    ),
    losses(
        "label-smoothing",
        "every token got ε, not ε/V: the target no longer sums to one",
        "-((1 - smoothing) * right + smoothing * log_p.sum(-1))",
    ),
    losses(
        "label-smoothing",
        "the right token kept all of its weight: the target sums to more than one",
        "-(right + smoothing * log_p.mean(-1))",
    ),
    losses(
        "label-smoothing",
        "the right token got 1 − ε and nothing of what is spread: it should have 1 − ε + ε/V",
        "-((1 - smoothing) * right + smoothing * (log_p.sum(-1) - right) / log_p.size(-1))",
    ),
    losses(
        "label-smoothing",
        "1 − ε and ε changed places",
        "-(smoothing * right + (1 - smoothing) * log_p.mean(-1))",
    ),
    Mistake(
        "divergence",
        "loss",
        "this is the divergence from the smoothed target: the cross-entropy less the target's own entropy",
        changes=(
            (
                LOSSES,
                "target = torch.nn.functional.one_hot(labels, logits.size(-1)) * (1 - smoothing)\n"
                "    target = target + smoothing / logits.size(-1)\n"
                "    losses = (target.xlogy(target) - target * log_p).sum(-1)",
            ),
        ),
        where=r"kl|KL",
    ),
    Mistake(
        "smoothing-over-padding",
        "loss",
        "the smoothed part is a mean over all places, padding too",
        changes=(
            (LOSSES, "losses = -right"),
            (MEAN, "(1 - smoothing) * losses[labels != pad].mean() - smoothing * log_p.mean()"),
        ),
        where=r"smooth",
    ),
    Mistake(
        "labels-shifted-twice",
        "loss",
        "shifted once more: the labels are shifted already when the loss gets them",
        changes=(
            (LOG, "logits[:, :-1].log_softmax(-1)"),
            ("log_p.gather(-1, labels.unsqueeze(-1))", "log_p.gather(-1, labels[:, 1:].unsqueeze(-1))"),
            (MEAN, "losses[labels[:, 1:] != pad].mean()"),
        ),
        where=r":-1|1:",
    ),
)
