"""The copy test: "if two layers cannot learn to copy within 1,000 steps, your masking is wrong". How good a test is it?

Each arm is the encoder-decoder on which the doctor is tested (`clearhead/doctor/hosts`) with one of the bugs planted
there (`clearhead/doctor/mutants`), none of which crashes. It learns to copy short lists, in batches with padding; then
it writes copies of new ones, by its own greedy search and cache. A bug is caught if copies are wrong. Beside it stands
what the doctor finds in the same code without training it, reference weights not used.
"""

from functools import cache
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from clearhead.doctor.causes.masks import CAUSES
from clearhead.doctor.examine import check
from clearhead.doctor.hosts.describe import describe
from clearhead.doctor.hosts.loop import CLIP, PAD
from clearhead.doctor.mutants import load, table
from clearhead.doctor.mutants.seq2seq import MUTANTS
from clearhead.doctor.probes import PROBES, SLOW
from clearhead.lab.drawing import panels
from clearhead.lab.experiment import Experiment, Numbers, Results, Sizes, Verdict
from clearhead.training.loop import seed_of

PASSED = 0.95  # of the copies right
START, END, FIRST, SYMBOLS = 1, 2, 3, 20  # tokens: what begins a copy, what ends it, and the symbols from FIRST on
HEALTHY = "healthy"
# every bug of the model, and those of the loss that training to translate comes across
LOSS = ("11", "73", "75", "76", "x61", "x63", "x68", "x69", "x71")
BUGS = {bug.title: bug for bug in [*MUTANTS, *map(table().__getitem__, LOSS)]}
MASKING = {cause.id for cause, _, _ in CAUSES}
# the doctor's probes that neither train nor need the outputs of a model known to be right
PROBED = [name for name in PROBES if name not in SLOW and name != "parity"]


def is_masking(arm: str) -> bool:
    return arm != HEALTHY and any(cause in MASKING for cause in BUGS[arm].causes)


ARMS = {HEALTHY: "no bug"} | {
    title: f"bug {bug.id} of the {'loss' if bug.host == 'loop' else 'model'}{', masking' * is_masking(title)}"
    for title, bug in BUGS.items()
}


def description(arm: str) -> Any:
    """The arm's model as the doctor wants it: how to build it, its loss, its search."""
    if arm == HEALTHY:
        return describe("seq2seq", "plain")
    bug = BUGS[arm]
    return describe(bug.host, "plain" if bug.host == "seq2seq" else "seq2seq", load(bug))


def some_lists(rows: int, longest: int, shortest: int = 1) -> tuple[Tensor, Tensor]:
    """Lists and what to write, (rows, longest) and (rows, longest + 2): symbols, and around a copy START and END."""
    symbols = torch.randint(FIRST, FIRST + SYMBOLS, (rows, longest))
    lengths = torch.randint(shortest, longest + 1, (rows, 1))
    places = torch.arange(longest + 1)
    source = symbols.masked_fill(places[:-1] >= lengths, PAD)
    copy = torch.cat((source, torch.full((rows, 1), PAD)), 1).masked_fill(places == lengths, END)
    return source, torch.cat((torch.full((rows, 1), START), copy), 1)


def learn(spec: Any, seed: int, sizes: Sizes) -> tuple[Any, list[float]]:
    """A model that was trained to copy, and the loss of each update; a loss that is not finite ends it."""
    torch.manual_seed(seed_of(seed, "weights"))
    sizes_of_it = {"vocab": FIRST + SYMBOLS, "width": 64, "heads": 4, "layers": 2, "max_length": 32, "dropout": 0.0}
    model = spec.build(**sizes_of_it).train()
    optimizer, losses = torch.optim.Adam(model.parameters(), fused=True), []
    for step in range(sizes["steps"]):
        torch.manual_seed(seed_of(seed, step))
        loss = spec.loss(model, *some_lists(sizes["rows"], sizes["longest"]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if not loss.isfinite():
            break
        optimizer.param_groups[0]["lr"] = 2e-3 * min(1, 10 * (step + 1) / sizes["steps"])
        optimizer.step()
        losses.append(loss.item())
    return model.eval(), losses


@torch.no_grad()
def copied(spec: Any, model: Any, seed: int, sizes: Sizes) -> tuple[float, float]:
    """The shares of lists that are copied exactly by greedy search, and of tokens that are right after right ones."""
    torch.manual_seed(seed_of(seed, "lists"))
    exact, right, tokens = 0, 0, 0
    for length in range(1, sizes["longest"] + 1):
        source, target = some_lists(sizes["copies"], length, length)
        written = spec.generate(model, source, target[:, :1], length + 1)
        exact += int((written == target).all(1).sum())
        answers = spec.forward(model, source, target[:, :-1]).argmax(-1)
        right, tokens = right + int((answers == target[:, 1:]).sum()), tokens + answers.numel()
    return exact / (sizes["copies"] * sizes["longest"]), right / tokens


@cache
def usual() -> set[str]:
    """What the doctor remarks on in the healthy model."""
    return {finding.id for finding in check(description(HEALTHY), PROBED).findings}


@cache
def found_by_doctor(arm: str) -> bool:
    """An error, or a warning that the healthy model does not get; nothing is trained, so seeds do not matter."""
    findings = check(description(arm), PROBED).findings
    return any(
        found.severity == "error" or (found.severity == "warning" and found.id not in usual()) for found in findings
    )


def measure(arm: str, seed: int, sizes: Sizes) -> Numbers:
    spec = description(arm)
    model, losses = learn(spec, seed, sizes)
    exact, accuracy = copied(spec, model, seed, sizes)
    return {
        "exact": exact,
        "accuracy": accuracy,
        "loss": sum(losses[-20:]) / max(1, len(losses[-20:])),
        "doctor": float(found_by_doctor(arm)),
    }


def caught(results: Results, arm: str) -> bool:
    return results.mean(arm, "exact") < PASSED


def verdict(results: Results) -> Verdict:
    failed = [arm for arm in BUGS if caught(results, arm)]
    passed = [arm for arm in BUGS if arm not in failed]
    found = [arm for arm in BUGS if results.mean(arm, "doctor") == 1]
    needed = [arm for arm in passed if arm in found]
    neither = [arm for arm in passed if arm not in found]
    sentence = (
        f"copying catches {len(failed)} of {len(BUGS)} planted bugs. The doctor, without training, finds {len(found)}, "
        f"among them {len(needed)} of the {len(passed)} that copy well. Neither sees: {', '.join(neither) or 'none'}"
    )
    if caught(results, HEALTHY):
        return Verdict("cannot tell at this size", f"the healthy model does not pass either; {sentence}")
    others = [arm for arm in failed if not is_masking(arm)]
    quiet = [arm for arm in passed if is_masking(arm)]
    if not others and not quiet:
        return Verdict("holds", sentence)
    if others and quiet:
        return Verdict(
            "does not hold here",
            f"{len(others)} of the {len(failed)} that fail have nothing wrong with the masking, and {len(quiet)} with "
            f"wrong masks pass ({', '.join(quiet)}); {sentence}",
        )
    reason = f"failing may also mean {', '.join(others)}" if others else f"passing may hide {', '.join(quiet)}"
    return Verdict("holds only if", f"one reads it with care: {reason}; {sentence}")


def figure(results: Results) -> Figure:
    drawn, (axes,) = panels(1, width=9.5, height=9.5)
    order = sorted(ARMS, key=lambda arm: (arm != HEALTHY, -results.mean(arm, "exact")))
    for row, arm in enumerate(order):
        value, passes = results.interval(arm, "exact"), not caught(results, arm)
        colour = "#009E73" if passes else "#D55E00"
        axes.barh(row, value.mean, color=colour, height=0.6, hatch="" if passes else "///", edgecolor="white")
        axes.plot([max(0, value.low), min(1, value.high)], [row, row], color="black", linewidth=1)
        note = "" if arm == HEALTHY else "doctor: finds it" if results.mean(arm, "doctor") else "doctor: silent"
        axes.annotate(f"{value.mean:.2f}", (1.02, row), va="center", fontsize=8)
        axes.annotate(note, (1.12, row), va="center", fontsize=8)
    axes.set_yticks(range(len(order)), [f"{arm}{' *' if is_masking(arm) else ''}" for arm in order], fontsize=8)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.set_xlim(0, 1.4)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.axvline(PASSED, color="0.4", linewidth=1, linestyle=":")
    axes.set_xlabel(f"share of lists copied exactly (dotted: {PASSED}, from which on a bug passes)")
    axes.set_title(f"After {results.sizes['steps']} updates of copying; * masking; hatched: caught", loc="left")
    return drawn


EXPERIMENT = Experiment(
    number=16,
    name="copy-test",
    claim="If a two-layer Transformer cannot learn to copy within 1,000 steps, something is wrong with the masking.",
    arms=ARMS,
    measured="The share of new lists of every length that greedy search copies exactly, after training with the bug; "
    "the share of right tokens when the tokens before are given; whether the doctor finds the bug, by its probes that "
    "neither train nor need reference weights.",
    rule="A bug is caught if fewer than 95% of the copies are right, on average over the seeds. A bug of masking is "
    "one whose cause the doctor files under masks. If the healthy model is caught too: cannot tell. Every masking bug "
    "caught and no other: holds. Other bugs caught as well, or some masking bugs not: holds only with care. Both: does "
    "not hold here.",
    measure=measure,
    verdict=verdict,
    figure=figure,
    quick={"seeds": 1, "steps": 300, "rows": 16, "longest": 5, "copies": 40},
    full={"seeds": 3, "steps": 1000, "rows": 16, "longest": 8, "copies": 50},
    columns={
        "exact": "share copied exactly",
        "accuracy": "right tokens after right ones",
        "loss": "training loss at the end (nats)",
        "doctor": "found by the doctor (1: yes)",
    },
)
