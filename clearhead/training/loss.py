"""Label-smoothed cross-entropy (section 5.4): how surprised the model is by the token that came.

The target is not all on the right token: it gets 1 − ε, and ε is spread evenly, ε/V on every class (Szegedy et al.,
2015). That makes the model less certain and its perplexity worse, but its translations better. First as the formula,
then the fused twin: the (tokens × vocabulary) logits are the largest tensor of a small model, so the twin makes them a
few rows at a time and turns each piece into its gradient while it is still in the processor's cache.

Losses are sums, not means: whoever divides must know the number of tokens of the whole batch, over all micro-batches
and processes, because a mean of means weighs the tokens of short batches more.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.data.batch import IGNORE
from clearhead.model import Transformer

PIECE = 1 << 22  # logits held at once by the fused twin: 16 megabytes, about what a processor's cache holds


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """−Σ over tokens of Σ_v target(v) · log p(v); logits (N, V), labels (N,), all of them counted."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    log_p = wide - torch.logsumexp(wide, dim=-1, keepdim=True)  # (N, V)
    right = log_p.gather(-1, labels[:, None]).squeeze(-1)  # (N,)
    return -((1 - smoothing) * right + smoothing * log_p.mean(-1)).sum()


def summed_loss(
    model: Transformer,
    hidden: Tensor,  # (B, S, D)
    labels: Tensor,  # (B, S), or (B,) where a sequence has one
    smoothing: float = 0.0,
    choices: Tensor | None = None,  # (N,): filled with the likeliest class at each label that counts
) -> Tensor:
    """The loss of hidden states against labels, summed over the N labels that count."""
    counted = labels != IGNORE
    # (N, D): no work is spent on padding
    rows, weight, bias = model.output.factors(hidden[counted], model.embedding)
    if model.config.kernels != "plain":
        return fused_cross_entropy(rows, weight, bias, labels[counted], smoothing, choices)
    logits = F.linear(rows, weight, bias)
    if choices is not None:
        choices.copy_(logits.argmax(-1))
    return cross_entropy(logits, labels[counted], smoothing)


# ---- the fused twin ------------------------------------------------------------------------------------------------


def fused_cross_entropy(
    hidden: Tensor,  # (N, D)
    weight: Tensor,  # (V, D)
    bias: Tensor | None,  # (V,)
    labels: Tensor,  # (N,)
    smoothing: float = 0.0,
    choices: Tensor | None = None,  # (N,): filled with the likeliest class of each row
) -> Tensor:
    """`cross_entropy(hidden weightᵀ + bias, labels)`, without ever holding all the logits, forward or backward."""
    loss: Tensor = PiecewiseCrossEntropy.apply(hidden, weight.to(hidden.dtype), bias, labels, smoothing, choices)
    return loss


class PiecewiseCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one sweep over the rows, since both need the same softmax.

    With p the softmax and t the target, the gradient of the logits is p − t. Three passes over the logits are saved:
    p = e/Σe is never divided out, because dividing the (rows, D) factors is far less work; the smoothed part of t is
    the same ε/V everywhere, so it enters as one vector at the end; and so does the sum of all logits of a row, which
    is hidden · Σ_v weight_v.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing, choices):  # type: ignore[no-untyped-def]
        wanted = any(ctx.needs_input_grad)
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        loss = hidden.new_zeros((), dtype=dtype)
        if wanted:
            grad_hidden = torch.empty_like(hidden)
            grad_weight = torch.zeros_like(weight, dtype=dtype)
            grad_bias = None if bias is None else torch.zeros_like(bias, dtype=dtype)
        step = max(1, PIECE // weight.size(0))
        for start in range(0, hidden.size(0), step):
            h, label = hidden[start : start + step], labels[start : start + step, None]
            logits = F.linear(h, weight, bias).to(dtype)
            if choices is not None:
                torch.argmax(logits, -1, out=choices[start : start + step])
            top = logits.amax(-1, keepdim=True)
            powers = logits.sub_(top)
            loss -= (1 - smoothing) * powers.gather(-1, label).sum()
            total = powers.exp_().sum(-1, keepdim=True)  # e and Σe; the logits themselves are not needed again
            loss += (total.log() + smoothing * top).sum()
            if wanted:
                powers.scatter_add_(-1, label, (smoothing - 1) * total)
                powers = powers.to(hidden.dtype)
                grad_hidden[start : start + step] = (powers @ weight).div_(total)
                share = (h / total).to(hidden.dtype)
                if powers.dtype == dtype:
                    grad_weight.addmm_(powers.T, share)
                else:  # 16-bit factors, 32-bit sum
                    grad_weight += powers.T @ share
                if grad_bias is not None:
                    grad_bias += (powers / total).sum(0, dtype=dtype)
        if smoothing:
            even = smoothing / weight.size(0)
            states, rows = hidden.sum(0, dtype=dtype), weight.sum(0, dtype=dtype)  # (D,) both
            loss -= even * states @ rows
            if bias is not None:
                loss -= even * hidden.size(0) * bias.sum(dtype=dtype)
            if wanted:
                grad_hidden -= (even * rows).to(hidden.dtype)
                grad_weight -= even * states
                if grad_bias is not None:
                    grad_bias -= even * hidden.size(0)
        if wanted:
            ctx.save_for_backward(grad_hidden, grad_weight.to(weight.dtype), grad_bias)
        return loss

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return *(None if part is None else part * grad.to(part.dtype) for part in ctx.saved_tensors), None, None, None
