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

from clearhead.model import EncoderOnly, Transformer
from clearhead.model.norm import at_least_float32

IGNORE = -100  # the label of positions where nothing is predicted
PIECE = 1 << 20  # logits held at once by the fused twin: a few megabytes, so that they stay in the cache


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """−Σ over tokens of Σ_v target(v) · log p(v); logits (N, V), labels (N,), all of them counted."""
    wide = logits.to(at_least_float32(logits))
    log_p = wide - torch.logsumexp(wide, dim=-1, keepdim=True)  # (N, V)
    right = log_p.gather(-1, labels[:, None]).squeeze(-1)  # (N,)
    return -((1 - smoothing) * right + smoothing * log_p.mean(-1)).sum()


def summed_loss(model: Transformer, hidden: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """The loss of hidden states (B, S, D) against labels (B, S), summed over the labels that count."""
    counted = labels != IGNORE
    if isinstance(model, EncoderOnly) and model.config.head.kind != "masked":
        return cross_entropy(model.head(hidden)[counted], labels[counted], smoothing)
    rows = hidden[counted]  # (N, D): no work is spent on padding
    if isinstance(model, EncoderOnly):
        rows = model.before_logits(rows)
    weight, bias = model.output.matrix(model.embedding), model.output.bias
    if model.config.kernels == "plain":
        return cross_entropy(F.linear(rows, weight, bias), labels[counted], smoothing)
    return fused_cross_entropy(rows, weight, bias, labels[counted], smoothing)


# ---- the fused twin ------------------------------------------------------------------------------------------------


def fused_cross_entropy(
    hidden: Tensor,  # (N, D)
    weight: Tensor,  # (V, D)
    bias: Tensor | None,  # (V,)
    labels: Tensor,  # (N,)
    smoothing: float = 0.0,
) -> Tensor:
    """`cross_entropy(hidden weightᵀ + bias, labels)`, without ever holding all the logits, forward or backward."""
    loss: Tensor = PiecewiseCrossEntropy.apply(hidden, weight.to(hidden.dtype), bias, labels, smoothing)
    return loss


class PiecewiseCrossEntropy(torch.autograd.Function):
    """Loss and gradient in one sweep over the rows, since both need the same softmax.

    With p the softmax and t the target, the gradient of the logits is p − t. The smoothed part of t is the same ε/V
    everywhere, so it enters as one vector at the end instead of as a pass over all logits; so does the sum of a row's
    logits, which is hidden · Σ_v weight_v.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, labels, smoothing):  # type: ignore[no-untyped-def]
        wanted = any(ctx.needs_input_grad)
        dtype = at_least_float32(hidden)
        vocabulary = weight.size(0)
        even = smoothing / vocabulary
        loss = hidden.new_zeros((), dtype=dtype)
        if wanted:
            grad_hidden = torch.empty_like(hidden)
            grad_weight = torch.zeros_like(weight, dtype=dtype)
            grad_bias = torch.zeros(vocabulary, dtype=dtype, device=weight.device)
        step = max(1, PIECE // vocabulary)
        for start in range(0, hidden.size(0), step):
            h, label = hidden[start : start + step], labels[start : start + step, None]
            logits = F.linear(h, weight, bias).to(dtype)
            log_total = torch.logsumexp(logits, -1, keepdim=True)
            loss += (log_total - (1 - smoothing) * logits.gather(-1, label)).sum()
            if wanted:
                p = logits.sub_(log_total).exp_()  # the logits themselves are not needed again
                p.scatter_add_(-1, label, p.new_full(label.shape, smoothing - 1))
                p = p.to(hidden.dtype)
                torch.mm(p, weight, out=grad_hidden[start : start + step])
                if p.dtype == dtype:
                    grad_weight.addmm_(p.T, h)
                else:  # 16-bit factors, 32-bit sum
                    grad_weight += p.T @ h
                if bias is not None:
                    grad_bias += p.sum(0, dtype=dtype)
        if smoothing:
            states = hidden.sum(0, dtype=dtype)  # (D,)
            rows = weight.sum(0, dtype=dtype)  # (D,)
            loss -= even * states @ rows
            if bias is not None:
                loss -= even * hidden.size(0) * bias.sum()
            if wanted:
                grad_hidden -= (even * rows).to(hidden.dtype)
                grad_weight -= even * states
                grad_bias -= even * hidden.size(0)
        if wanted:
            ctx.save_for_backward(grad_hidden, grad_weight.to(weight.dtype), grad_bias if bias is not None else None)
        return loss

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        scaled = None if grad_bias is None else grad_bias * grad
        return grad_hidden * grad.to(grad_hidden.dtype), grad_weight * grad.to(grad_weight.dtype), scaled, None, None
