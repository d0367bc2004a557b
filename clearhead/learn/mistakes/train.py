"""How a training loop usually goes wrong; told by what was found of it, since no two loops return the same numbers."""

from collections.abc import Callable, Mapping
from typing import Any

from clearhead.learn.exercise import Mistake

Findings = Mapping[str, dict[str, Any]]
CALL = "loss(model(source, inputs, source != PAD), labels, PAD, smoothing=0.1)"
SHIFT = "inputs, labels = shift(target)"
RATE = "noam(number, model.embedding.weight.size(1), warmup)"


def found(id: str, key: str = "", value: Any = True) -> Callable[[Findings], float]:
    """As sure as a finding is, if it has this piece of evidence."""
    return lambda findings: 0.95 if id in findings and (not key or findings[id].get(key) == value) else 0.0


def unshifted(findings: Findings) -> float:
    return 0.97 if findings.get("update.unlearned", {}).get("repeats", 0) > 0.8 else 0.0


def twice(findings: Findings) -> float:
    return 0.96 if findings.get("update.unlearned", {}).get("offset_two", 0) > 0.8 else 0.0


def never(findings: Findings) -> float:
    nothing = findings.get("update.unlearned")
    return 0.9 if nothing is not None and nothing["updates"] == 0 else 0.0


def kept(findings: Findings) -> float:
    nothing = findings.get("update.unlearned")
    return 0.4 if nothing is not None and nothing["updates"] else 0.0


def other(findings: Findings) -> float:
    nothing = findings.get("update.unlearned")
    # before what is said of a model that repeats its input: one that hardly moved does so, too, by its tied table
    return 0.98 if nothing is not None and nothing["optimizers"] and "Adam" not in nothing["optimizers"][0] else 0.0


MISTAKES = (
    Mistake(
        "labels-unshifted",
        "train",
        "the model learned to repeat what it reads: its labels are its inputs, not the tokens after them",
        changes=((SHIFT, "inputs, labels = target[:, :-1], target[:, :-1]"),),
        where=r"shift|target",
        fits=unshifted,
    ),
    Mistake(
        "labels-backwards",
        "train",
        "inputs and labels changed places: each label is the token before, which the model has just read",
        changes=((SHIFT, "labels, inputs = shift(target)"),),
        where=r"shift|target",
        fits=lambda findings: 0.97 if findings.get("update.unlearned", {}).get("backwards") else 0.0,
    ),
    Mistake(
        "losses-smoothed",
        "train",
        "what comes back are not the losses of the updates: no mean over earlier ones, no sum, no later look",
        changes=(("losses.append(error.item())", "losses.append((sum(losses) + error.item()) / number)"),),
        where=r"append",
        fits=lambda findings: 0.9 if "update.reported" in findings else 0.0,
    ),
    Mistake(
        "labels-shifted-twice",
        "train",
        "the labels are two tokens ahead: the target was shifted twice",
        changes=((SHIFT, "inputs, labels = target[:, :-2], target[:, 2:]"),),
        where=r"shift|target",
        fits=twice,
    ),
    Mistake(
        "loss-padding",
        "train",
        "padding of the target counts in the loss: tell it which label is padding",
        changes=((CALL, "loss(model(source, inputs, source != PAD), labels, -1, smoothing=0.1)"),),
        where=r"loss\(",
        fits=found("padding.content", "side", "target"),
    ),
    Mistake(
        "padding-ignored",
        "train",
        "the source's padding is seen: tell the model which tokens are real",
        changes=((CALL, "loss(model(source, inputs), labels, PAD, smoothing=0.1)"),),
        where=r"model\(",
        fits=found("padding.content", "side", "source"),
    ),
    Mistake(
        "train-mode-missing",
        "train",
        "the model was in evaluation while it trained: dropout did nothing",
        changes=(("    model.train()\n", "    model.eval()\n"),),
        where=r"train\(\)|eval\(\)",
        fits=found("mode.training"),
    ),
    Mistake(
        "mode-left",
        "train",
        "the model is left in training mode: whoever uses it now gets dropout",
        changes=(("    model.eval()\n", ""),),
        where=r"return",
        fits=found("mode.left"),
    ),
    Mistake(
        "rate-constant",
        "train",
        "the rate is the same at every step: it should follow the schedule, up and then down",
        changes=((RATE, "1e-3"),),
        where=r"update\(|lr|noam",
        fits=found("schedule.other", "constant"),
    ),
    Mistake(
        "warmup-zero",
        "train",
        "the first step has the rate zero: steps are counted from 1",
        changes=((RATE, "0.0 if number == 1 else noam(number - 1, model.embedding.weight.size(1), warmup)"),),
        where=r"enumerate|range|noam",
        fits=found("schedule.other", "first_zero"),
    ),
    Mistake(
        "schedule-late",
        "train",
        "the rates run one step ahead: the first step is number 1",
        changes=((RATE, "noam(number + 1, model.embedding.weight.size(1), warmup)"),),
        where=r"enumerate|range|noam",
        fits=found("schedule.other", "late"),
    ),
    Mistake(
        "stepped-twice",
        "train",
        "the optimizer makes two steps for each batch: `update` makes one already",
        changes=(("        losses.append(", "        optimizer.step()\n        losses.append("),),
        where=r"step\(\)",
        fits=found("schedule.other", "twice"),
    ),
    Mistake(
        "schedule-width",
        "train",
        "the schedule was asked with something else than the model's width and the warm-up",
        changes=((RATE, "noam(number, warmup, model.embedding.weight.size(1))"),),
        where=r"noam",
        fits=lambda findings: 0.5 if "schedule.other" in findings else 0.0,
    ),
    Mistake(
        "optimizer-misses",
        "train",
        "the optimizer does not hold all parameters: some never learn",
        changes=(("Adam(model.parameters(),", "Adam(model.decoder.parameters(),"),),
        where=r"Adam|SGD|optim",
        fits=found("optimizer.missing"),
    ),
    Mistake(
        "optimizer-anew",
        "train",
        "a new optimizer was made at every step: Adam's averages begin anew each time",
        changes=(
            (
                SHIFT,
                SHIFT + "\n        optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)",
            ),
        ),
        where=r"Adam|SGD|optim",
        fits=found("optimizer.anew"),
    ),
    Mistake(
        "optimizer-other",
        "train",
        "another optimizer than Adam, which at these rates hardly moves a Transformer",
        changes=(
            (
                "torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)",
                "torch.optim.SGD(model.parameters(), lr=0.1)",
            ),
        ),
        where=r"Adam|SGD|optim",
        fits=other,
    ),
    Mistake(
        "losses-as-tensors",
        "train",
        "the losses are tensors, which keep every step's graph alive: take their numbers with .item()",
        changes=(("losses.append(error.item())", "losses.append(error)"),),
        where=r"append",
        fits=found("update.result", "tensors"),
    ),
    Mistake(
        "steps-miscounted",
        "train",
        "there is one loss for each of the steps, no more and no fewer",
        changes=(("islice(batches, steps)", "islice(batches, steps - 1)"),),
        where=r"range|islice|steps|break",
        fits=lambda findings: (
            0.6 if findings.get("update.result", {}).get("count", 0) >= 0 and "update.result" in findings else 0.0
        ),
    ),
    Mistake(
        "nothing-returned",
        "train",
        "nothing comes back: return the list of losses",
        changes=(("return losses", "return None"),),
        where=r"def train",
        fits=found("update.result", "count", -1),
    ),
    Mistake(
        "one-batch-only",
        "train",
        "every step saw the first batch: take the next one each time",
        changes=(("enumerate(islice(batches, steps), 1)", "enumerate([next(iter(batches))] * steps, 1)"),),
        where=r"next|iter",
        fits=lambda findings: 0.95 if findings.get("update.batches", {}).get("seen", 9) < 2 else 0.0,
    ),
    Mistake(
        "batches-skipped",
        "train",
        "more batches were taken than steps were made: one batch a step",
        changes=(("islice(batches, steps)", "islice(batches, 0, 2 * steps, 2)"),),
        where=r"next|iter",
        fits=lambda findings: (
            0.9 if findings.get("update.batches", {}).get("taken", 0) > 6 and "update.result" not in findings else 0.0
        ),
    ),
    Mistake(
        "loss-summed",
        "train",
        "the loss is a sum over tokens, not their mean: the first one should be near ln V",
        changes=((CALL, "10 * " + CALL),),
        where=r"loss\(|error",
        fits=found("initial.loss"),
    ),
    Mistake(
        "update-nothing",
        "train",
        "the weights never moved: is there an update in every step?",
        changes=((f"        update(model, optimizer, error, {RATE})\n", ""),),
        where=r"for ",
        fits=never,
    ),
    Mistake(
        "gradients-kept",
        "train",
        "it hardly learns: are gradients cleared before each step, and the loss computed from the logits?",
        text="""def train(model, batches, steps, warmup):
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    losses = []
    model.train()
    for number, (source, target) in enumerate(islice(batches, steps), 1):
        inputs, labels = shift(target)
        error = loss(model(source, inputs, source != PAD), labels, PAD)
        for group in optimizer.param_groups:
            group["lr"] = noam(number, model.embedding.weight.size(1), warmup)
        (-error).backward()
        optimizer.step()
        losses.append(error.item())
    model.eval()
    return losses
""",
        where=r"zero_grad|backward|step",
        fits=kept,
    ),
)
