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
from clearhead.lab.experiment import Experiment, Numbers, Part, Results, Sizes, Verdict
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


def by_masks(results: Results) -> tuple[list[str], list[str], list[str], list[str]]:
    """Bugs that are caught and those that are not, of masking and others."""
    groups: tuple[list[str], ...] = ([], [], [], [])
    for arm in BUGS:
        groups[2 * (not caught(results, arm)) + (not is_masking(arm))].append(arm)
    return groups  # type: ignore[return-value]


def failing(results: Results) -> Verdict:
    """Of those that fail, how many have something wrong with the masking?"""
    masks, others, _, _ = by_masks(results)
    if caught(results, HEALTHY):
        return Verdict("cannot tell at this size", "the healthy model does not learn to copy either")
    failed = len(masks) + len(others)
    sentence = f"of {failed} planted bugs that keep it from copying, {len(masks)} are bugs of masking"
    if not others:
        return Verdict("holds", sentence)
    return Verdict("does not hold here", f"{sentence}; others are {', '.join(others[:4])}")


def passing(results: Results) -> Verdict:
    """The converse: does copying well mean that nothing is wrong with the masking?"""
    masks, _, quiet, _ = by_masks(results)
    sentence = f"of {len(masks) + len(quiet)} bugs of masking {len(quiet)} copy well"
    if caught(results, HEALTHY):
        return Verdict("cannot tell at this size", "the healthy model does not learn to copy either")
    return Verdict("holds", sentence) if not quiet else Verdict("does not hold here", f"{sentence}: {', '.join(quiet)}")


def doctor(results: Results) -> Verdict:
    found = [arm for arm in BUGS if results.mean(arm, "doctor") == 1]
    _, _, quiet, passed = by_masks(results)
    missed = [arm for arm in quiet + passed if arm not in found]
    sentence = (
        f"without training it finds {len(found)} of {len(BUGS)}, among them {len(quiet + passed) - len(missed)} of the "
        f"{len(quiet + passed)} that copy well"
    )
    if not missed and len(found) == len(BUGS):
        return Verdict("holds", sentence)
    return Verdict("does not hold here", f"{sentence}; neither sees {', '.join(missed) or 'nothing'}")


VIEWS = [arm for arm, bug in BUGS.items() if set(bug.causes) & {"head-view", "head-merge", "head-view-both"}]


def silent_view(results: Results) -> Verdict:
    """Does a wrong `view` or a missing `transpose` leave the loss as it is and ruin the copies?"""
    healthy = results.mean(HEALTHY, "loss")
    shown = "; ".join(
        f"{arm}: loss {results.mean(arm, 'loss'):.3f}, {results.interval(arm, 'exact')} copied" for arm in VIEWS
    )
    sentence = f"{shown} (healthy: loss {healthy:.3f}, {results.interval(HEALTHY, 'exact')} copied)"
    silent = [arm for arm in VIEWS if caught(results, arm) and results.mean(arm, "loss") < healthy + 0.05]
    if len(silent) == len(VIEWS):
        return Verdict("holds", sentence)
    if silent:
        return Verdict("holds only if", f"one of two is wrong ({', '.join(silent)}): {sentence}")
    return Verdict("does not hold here", sentence)


def headline(results: Results) -> str:
    masks, others, quiet, passed = by_masks(results)
    return (
        f"Copying catches {len(masks) + len(others)} of {len(BUGS)} planted bugs: {len(masks)} of "
        f"{len(masks) + len(quiet)} in the masking and {len(others)} of {len(others) + len(passed)} elsewhere. It is a "
        "good first test, of more than masks, and it is not enough."
    )


def figure(results: Results) -> Figure:
    """Two panels, bugs of masking and others, the best copiers on top; what passes is drawn full, what fails hollow."""
    drawn, axes = panels(2, width=8.4, height=7.6)
    groups = {
        "Bugs of masking": [arm for arm in BUGS if is_masking(arm)],
        "Other bugs": [arm for arm in BUGS if not is_masking(arm)],
    }
    for panel, (title, arms) in zip(axes, groups.items(), strict=True):
        order = [HEALTHY, *sorted(arms, key=lambda arm: -results.mean(arm, "exact"))]
        for row, arm in enumerate(order):
            value, passes = results.interval(arm, "exact"), not caught(results, arm)
            colour = "#009E73" if passes else "#D55E00"
            panel.plot([value.low, value.high], [row, row], color=colour, linewidth=2)
            face = colour if passes else "white"
            panel.plot([value.mean], [row], "o", color=colour, markerfacecolor=face, markersize=7)
            found = arm == HEALTHY or results.mean(arm, "doctor") == 1
            note = f"{value.mean:.2f}" + ("" if found else "  (the doctor is silent)")
            panel.annotate(note, (1.05, row), va="center", fontsize=8)
        panel.set_yticks(range(len(order)), order, fontsize=8)
        panel.set_ylim(len(order) - 0.4, -0.7)
        panel.set_xlim(-0.03, 1.2)
        panel.set_xticks([0, 0.25, 0.5, 0.75, 1])
        panel.axvline(PASSED, color="0.4", linewidth=1, linestyle=":")
        panel.set_xlabel(f"share of lists copied exactly (dotted: {PASSED})")
        passed = sum(not caught(results, arm) for arm in arms)
        panel.set_title(f"{title}: {passed} of {len(arms)} pass (full dots)", loc="left")
    return drawn


EXPERIMENT = Experiment(
    number=16,
    name="copy-test",
    claim="If a two-layer Transformer cannot learn to copy within 1,000 steps, something is wrong with the masking.",
    parts=(
        Part(
            "If copying is not learned, the masking is wrong.",
            "A bug is caught if fewer than 95% of the copies are right, on average over the seeds; a bug of masking is "
            "one whose cause the doctor files under masks. Only bugs of masking are caught: holds; otherwise it does "
            "not hold here; if the healthy model is caught too, it cannot be told.",
            failing,
        ),
        Part(
            "If copying is learned, the masking is right (nobody says so, but it is how the test is read).",
            "Every bug of masking is caught: holds; otherwise it does not hold here.",
            passing,
        ),
        Part(
            "A single wrong view() or transpose() silently corrupts attention.",
            "With the heads split or merged wrongly, the training loss ends less than 0.05 nats above the healthy "
            "one's and the bug is caught by copying, for each way to do it: holds; for some: holds only for those; for "
            "none: does not hold here.",
            silent_view,
        ),
        Part(
            "The doctor sees what copying does not.",
            "Its probes that neither train nor need reference weights find every planted bug: holds; otherwise it does "
            "not hold here.",
            doctor,
        ),
    ),
    arms=ARMS,
    measured="The share of new lists of every length that greedy search copies exactly, after training with the bug; "
    "the share of right tokens when the tokens before are given; whether the doctor finds the bug, by its probes that "
    "neither train nor need reference weights.",
    measure=measure,
    headline=headline,
    figure=figure,
    quick={"seeds": 1, "steps": 300, "rows": 16, "longest": 5, "copies": 40},
    full={"seeds": 3, "steps": 1000, "rows": 16, "longest": 8, "copies": 50},
    columns={
        "exact": "share copied exactly",
        "accuracy": "right tokens after right ones",
        "loss": "training loss at the end (nats)",
        "doctor": "found by the doctor (1: yes)",
    },
    shares={
        "exact": lambda sizes: sizes["copies"] * sizes["longest"],
        "accuracy": lambda sizes: sizes["copies"] * sum(range(2, sizes["longest"] + 2)),
    },
)
