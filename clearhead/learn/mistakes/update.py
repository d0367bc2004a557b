"""How the schedule and an update usually go wrong."""

from clearhead.learn.exercise import Mistake

NOAM = "min(step**-0.5, step * warmup**-1.5)"
RATE = """    for group in optimizer.param_groups:
        group["lr"] = rate
"""
ZERO = "    optimizer.zero_grad()\n"
BACKWARD = "    loss.backward()\n"
CLIP = "    nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP = "    optimizer.step()"


def rate(id: str, say: str, new: str, old: str = NOAM) -> Mistake:
    return Mistake(id, "noam", say, changes=((old, new),), where=r"return|min|max|\*\*")


def moved(id: str, say: str, *changes: tuple[str, str], where: str = "") -> Mistake:
    return Mistake(id, "update", say, changes=changes, where=where)


MISTAKES = (
    rate(
        "warmup-zero",
        "steps are counted from 1 here; counted from 0, the first update has no rate at all",
        "min(max(step - 1, 1e-9) ** -0.5, (step - 1) * warmup**-1.5)",
    ),
    rate(
        "schedule-offset",
        "the rate is one step ahead: steps are counted from 1 already",
        "min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)",
    ),
    rate(
        "schedule-behind",
        "the rate is one step behind: the first two steps have the same",
        "min(max(step - 1, 1) ** -0.5, max(step - 1, 1) * warmup**-1.5)",
    ),
    rate(
        "width-missing",
        "the width is left out, and the warm-up divided out: the peak is (width · warmup)^-0.5, not the factor itself",
        "warmup**0.5",
        "width**-0.5",
    ),
    rate("schedule-max", "the larger of the two: the rate falls first and rises then", NOAM.replace("min", "max")),
    rate("schedule-peak", "the warm-up rises too fast: the exponent of warmup", "min(step**-0.5, step * warmup**-0.5)"),
    rate("schedule-peak", "the warm-up rises too fast: the exponent of warmup", "min(step**-0.5, step / warmup)"),
    rate("schedule-peak", "the warm-up rises too slowly: the exponent of warmup", "min(step**-0.5, step * warmup**-2)"),
    rate(
        "schedule-peak", "a warm-up that grows with the root of the step", "min(step**-0.5, step**0.5 * warmup**-1.5)"
    ),
    rate(
        "schedule-decay",
        "after the warm-up the rate stays level; it should fall as 1/√step",
        "min(warmup**-0.5, step * warmup**-1.5)",
    ),
    rate(
        "schedule-decay",
        "the rate falls as 1/step; it should fall as 1/√step",
        "min(warmup**0.5 / step, step * warmup**-1.5)",
    ),
    rate("schedule-decay", "the rate falls as 1/step; it should fall as 1/√step", "min(1 / step, step * warmup**-1.5)"),
    rate(
        "warmup-missing",
        "the rate does not rise: during the warm-up it is level, and the first updates have the highest",
        "min(step**-0.5, warmup**-0.5)",
    ),
    Mistake(
        "exponent-brackets",
        "noam",
        "`**` comes before `/`: x ** -1/2 is half of 1/x; write x ** -0.5, or brackets around -1/2",
        changes=(("width**-0.5", "width**-1 / 2"), (NOAM, "min(step**-1 / 2, step * warmup**-3 / 2)")),
        where=r"/ ?2",
    ),
    Mistake(
        "exponent-brackets",
        "noam",
        "`**` comes before `/`: x ** -1/2 is half of 1/x; write x ** -0.5, or brackets around -1/2",
        changes=((NOAM, "min(step**-1 / 2, step * warmup**-3 / 2)"),),
        where=r"/ ?2",
    ),
    rate("warmup-missing", "there is no warm-up: the first updates have the highest rate", "step**-0.5"),
    rate(
        "decay-missing",
        "there is no end to the rise: after the warm-up the rate falls as 1/√step",
        "step * warmup**-1.5",
    ),
    rate("schedule-sum", "the two were added; the smaller one counts", "(step**-0.5 + step * warmup**-1.5)"),
    rate("width-missing", "the width is left out: wider models want a smaller rate", "1", "width**-0.5"),
    rate("width-exponent", "it grows with the width; it should shrink as 1/√width", "width**0.5", "width**-0.5"),
    rate("width-exponent", "divided by the width; it should be by its root", "width**-1", "width**-0.5"),
    rate("factor-missing", "the factor is never used", "return width", "return factor * width"),
    moved("gradients-kept", "the gradients of the last update are still there: each step adds to them", (ZERO, "")),
    moved(
        "clip-missing",
        "the gradient was not cut to length max_norm before the step was taken: never, or too early, or too late",
        (CLIP, ""),
        where=r"step\(\)",
    ),
    moved(
        "clip-each-value",
        "each number was cut by itself, which turns the gradient; its length is meant",
        (CLIP, CLIP.replace("norm_", "value_")),
        where=r"clip|clamp",
    ),
    moved(
        "clip-each-parameter",
        "each parameter was cut by itself; the length of all gradients together is meant",
        (CLIP, "    for one in model.parameters():\n        nn.utils.clip_grad_norm_([one], max_norm)\n"),
        where=r"clip|norm",
    ),
    moved(
        "clip-always",
        "short gradients were made longer: only what is longer than max_norm is cut",
        (
            CLIP,
            "    length = torch.stack([one.grad.norm() for one in model.parameters()]).norm()\n"
            "    for one in model.parameters():\n        one.grad *= max_norm / length\n",
        ),
        where=r"max_norm",
    ),
    moved(
        "clip-other-norm",
        "cut to 1, whatever max_norm says",
        (CLIP, CLIP.replace("max_norm", "1.0")),
        where=r"clip",
    ),
    moved(
        "clip-other-length",
        "another length than the root of the sum of squares",
        (CLIP, CLIP.replace("max_norm)", "max_norm, norm_type=1)")),
        where=r"clip|norm",
    ),
    moved(
        "clip-other-length",
        "another length than the root of the sum of squares",
        (CLIP, CLIP.replace("max_norm)", 'max_norm, norm_type=float("inf"))')),
        where=r"clip|norm",
    ),
    moved(
        "clip-the-weights",
        "the weights were cut, not their gradients",
        (
            CLIP,
            "    with torch.no_grad():\n"
            "        length = torch.stack([one.norm() for one in model.parameters()]).norm()\n"
            "        for one in model.parameters():\n            one *= min(1.0, max_norm / length)\n",
        ),
        where=r"norm",
    ),
    moved(
        "update-nothing",
        "the gradients were cleared between backward and the step",
        (ZERO, ""),
        (CLIP, CLIP + ZERO),
        where=r"zero_grad",
    ),
    moved("update-nothing", "nothing computed the gradients", (BACKWARD, "")),
    moved("update-nothing", "the optimizer never took its step", (STEP, "    return None")),
    moved(
        "optimizer-bypassed",
        "the weights were moved by hand, and the optimizer knows nothing of it: the step is its own",
        (
            STEP,
            "    with torch.no_grad():\n        for parameter in model.parameters():\n"
            "            parameter -= rate * parameter.grad",
        ),
        where=r"-=|sub_|grad\b",
    ),
    moved("rate-missing", "the rate is never given to the optimizer", (RATE, ""), where=r"step\(\)"),
    moved(
        "rate-one-group",
        "only the first group of parameters got the rate",
        (RATE, '    optimizer.param_groups[0]["lr"] = rate\n'),
        where=r"param_groups",
    ),
    moved(
        "rate-one-group",
        "only the last group of parameters got the rate",
        (RATE, '    optimizer.param_groups[-1]["lr"] = rate\n'),
        where=r"param_groups",
    ),
    moved(
        "rate-late",
        "the rate was set after the step, so it acts one update too late",
        (RATE, ""),
        (STEP, STEP + "\n" + RATE.rstrip()),
        where=r"lr",
    ),
    moved(
        "rate-scaled",
        "the old rate was multiplied by the new one",
        (RATE, RATE.replace("] = rate", "] *= rate")),
        where=r"lr",
    ),
    moved(
        "rate-twice",
        "the loss was multiplied by the rate as well: the step shrinks twice",
        (BACKWARD, "    (rate * loss).backward()\n"),
        where=r"backward",
    ),
    moved("stepped-twice", "two steps for one gradient", (STEP, STEP + "\n" + STEP), where=r"step\(\)"),
    moved(
        "uphill",
        "the step goes up: the loss grows",
        (BACKWARD, "    (-loss).backward()\n"),
        where=r"backward",
    ),
)
