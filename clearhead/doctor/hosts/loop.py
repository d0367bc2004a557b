"""The training side of the host models: loss, optimizer, schedule, and one update from several micro-batches."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD = 0
SMOOTHING = 0.1
CLIP = 1.0
WARMUP = 20


def token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Smoothed cross-entropy over the labels that are no padding, (B, S, V) against (B, S)."""
    flat, wanted = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)
    log_probabilities = F.log_softmax(flat, dim=-1)
    right = -log_probabilities.gather(1, wanted[:, None]).squeeze(1)
    spread = -log_probabilities.mean(dim=-1)
    real = (wanted != PAD).to(right.dtype)
    total = ((1 - SMOOTHING) * right * real).sum() + (SMOOTHING * spread * real).sum()
    return total / real.sum() if reduction == "mean" else total


def causal_loss(model: nn.Module, tokens: Tensor, reduction: str = "mean") -> Tensor:
    """Position i predicts token i+1."""
    logits = model(tokens[:, :-1])
    return token_loss(logits, tokens[:, 1:], reduction)


def translation_loss(model: nn.Module, source: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The decoder reads the target up to i and predicts its token i+1; padding of the source is hidden."""
    logits = model(source, target[:, :-1], source != PAD)
    return token_loss(logits, target[:, 1:], reduction)


def tagging_loss(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    """Every token has a label of its own."""
    return token_loss(model(tokens, tokens != PAD), labels)


def make_optimizer(model: nn.Module, lr: float = 1e-3) -> torch.optim.Optimizer:
    """AdamW that decays matrices, not biases and gains."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    kept = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr)


def adapt(model: nn.Module) -> torch.optim.Optimizer:
    """Give the model a fresh head for a new task, and the optimizer that trains it."""
    old = model.get_submodule("head").get_parameter("weight")
    model.head = nn.Linear(old.size(1), old.size(0), bias=False).to(old)
    return make_optimizer(model)


def learning_rate(update: int, width: int = 512) -> float:
    """Noam: linear warm-up, then the inverse square root of the step; the first update is number 1."""
    step = update + 1
    return width**-0.5 * min(step**-0.5, step * WARMUP**-1.5)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> float:
    """One update from several micro-batches: each token weighs the same, whichever micro-batch it came in."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer.zero_grad()
    tokens = sum(int((batch[:, 1:] != PAD).sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        loss = causal_loss(model, batch, reduction="sum") / tokens
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    scaler.step(optimizer)
    scaler.update()
    return total
