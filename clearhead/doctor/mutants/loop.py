"""Bugs planted in the training loop of the hosts: labels, normalisers, accumulation, optimizer, schedule."""

from functools import partial

from clearhead.doctor.mutants import planted

HELD_OUT = {"76", "x61", "72", "79", "x63", "x66", "x69", "82"}
row = partial(planted, "loop", HELD_OUT)

FLAT = "flat, wanted = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)"
OLD = '    old = model.get_submodule("head").get_parameter("weight")\n'
CAUSAL = "    logits = model(tokens[:, :-1])\n    return token_loss(logits, tokens[:, 1:], reduction)"
TOTAL = "total = ((1 - SMOOTHING) * right * real).sum() + (SMOOTHING * spread * real).sum()"
NORMALISER = 'return total / real.sum() if reduction == "mean" else total'
STEP = "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)"
GROUPS = 'groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.0}]'
SUMMED = 'loss = causal_loss(model, batch, reduction="sum") / tokens'

MUTANTS = [
    row(
        "11",
        "logits flattened sequence first, labels batch first",
        "decoder",
        FLAT,
        "flat, wanted = logits.transpose(0, 1).reshape(-1, logits.size(-1)), labels.reshape(-1)",
        "loss-mispaired",
    ),
    row(
        "63",
        "optimizer built before the head was swapped",
        "finetune",
        OLD,
        f"    optimizer = make_optimizer(model)\n{OLD}",
        "optimizer-misses",
        also=((".to(old)\n    return make_optimizer(model)", ".to(old)\n    return optimizer"),),
    ),
    row(
        "71",
        "labels not shifted",
        "decoder",
        CAUSAL,
        "    logits = model(tokens)\n    return token_loss(logits, tokens, reduction)",
        "labels-unshifted",
    ),
    row(
        "72",
        "labels shifted twice",
        "decoder",
        CAUSAL,
        "    logits = model(tokens[:, :-1])[:, :-1]\n    return token_loss(logits, tokens[:, 2:], reduction)",
        "labels-shifted-twice",
    ),
    row(
        "73",
        "the encoder reads the target",
        "seq2seq",
        "logits = model(source, target[:, :-1], source != PAD)",
        "logits = model(target[:, 1:], target[:, :-1], target[:, 1:] != PAD)",
        "target-leak",
    ),
    row(
        "75",
        "mean over padding too",
        "decoder",
        NORMALISER,
        'return total / wanted.numel() if reduction == "mean" else total',
        "mean-over-padding",
    ),
    row(
        "76",
        "smoothing counts ignored tokens",
        "decoder",
        TOTAL,
        "total = ((1 - SMOOTHING) * right * real).sum() + (SMOOTHING * spread).sum()",
        "smoothing-over-padding",
    ),
    row(
        "79",
        "mean of the micro-batches' means",
        "loop",
        SUMMED,
        "loss = causal_loss(model, batch) / len(batches)",
        "accumulation-mean",
    ),
    row(
        "80",
        "clipped before unscaled",
        "loop",
        STEP,
        "    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)\n    scaler.unscale_(optimizer)",
        "clip-before-unscale",
    ),
    row(
        "81",
        "first update has a learning rate of zero",
        "loop",
        "step = update + 1",
        "step = update or 1e-9",
        "warmup-zero",
    ),
    row(
        "82",
        "weight decay on biases and gains",
        "loop",
        GROUPS,
        'groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.1}]',
        "decay-on-norms",
    ),
    row(
        "x61",
        "softmax before the cross-entropy",
        "decoder",
        "log_probabilities = F.log_softmax(flat, dim=-1)",
        "log_probabilities = F.log_softmax(F.softmax(flat, dim=-1), dim=-1)",
        "softmax-twice",
    ),
    row(
        "x62",
        "labels rolled: the last token predicts the first",
        "decoder",
        CAUSAL,
        "    logits = model(tokens)\n    return token_loss(logits, tokens.roll(-1, dims=1), reduction)",
        "labels-rolled",
    ),
    row("x63", "sum where a mean is declared", "decoder", NORMALISER, "return total", "loss-normaliser"),
    row("x64", "gradients never zeroed", "loop", "    optimizer.zero_grad()\n", "", "gradients-kept"),
    row(
        "x65",
        "micro-batches summed, not averaged",
        "loop",
        SUMMED,
        "loss = causal_loss(model, batch)",
        "accumulation-mean",
        "accumulation-scale",
    ),
    row(
        "x66",
        "gradients zeroed between micro-batches",
        "loop",
        "        scaler.scale(loss).backward()\n",
        "        optimizer.zero_grad()\n        scaler.scale(loss).backward()\n",
        "accumulation-lost",
    ),
    row(
        "x67",
        "warm-up never ends",
        "loop",
        "return width**-0.5 * min(step**-0.5, step * WARMUP**-1.5)",
        "return width**-0.5 * step * WARMUP**-1.5",
        "schedule-peak",
    ),
    row(
        "x68",
        "the wrong token is ignored",
        "decoder",
        "real = (wanted != PAD).to(right.dtype)",
        "real = (wanted != 1).to(right.dtype)",
        "ignored-token",
    ),
    row(
        "x69",
        "loss of the positions before the padding only",
        "decoder",
        TOTAL,
        "total = ((1 - SMOOTHING) * right * real).sum() + (SMOOTHING * spread * real).sum() * 0",
        "label-smoothing",
    ),
    row(
        "x70",
        "biases never trained",
        "loop",
        'groups = [{"params": decayed, "weight_decay": 0.1}, {"params": kept, "weight_decay": 0.0}]',
        'groups = [{"params": decayed, "weight_decay": 0.1}]',
        "optimizer-misses",
    ),
    row(
        "x71",
        "source padding not passed by the loss",
        "seq2seq",
        "logits = model(source, target[:, :-1], source != PAD)",
        "logits = model(source, target[:, :-1])",
        "loss-padding",
    ),
    row(
        "x72",
        "labels shifted the wrong way",
        "decoder",
        CAUSAL,
        "    logits = model(tokens[:, 1:])\n    return token_loss(logits, tokens[:, :-1], reduction)",
        "labels-backwards",
        "labels-unshifted",
    ),
    row(
        "t11",
        "tags flattened in another order than the logits",
        "tagger",
        FLAT,
        "flat, wanted = logits.reshape(-1, logits.size(-1)), labels.t().reshape(-1)",
        "loss-mispaired",
    ),
]
