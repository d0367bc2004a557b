"""The training loop: does it learn?"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from clearhead.learn.exercise import Exercise, Property, Run
from clearhead.learn.mistakes.train import MISTAKES

PAD, BOS, EOS = 0, 1, 2
SIZES = {"V": 9, "D": 16, "H": 2, "F": 32}
STEPS, WARMUP = 60, 100  # so few steps stay within the warm-up
SOURCE = torch.tensor([[5, 3, 7], [4, 4, PAD]])
TARGET = torch.tensor([[BOS, 5, 3, 7, EOS], [BOS, 4, 4, EOS, PAD]])


def wider(x: Tensor, columns: int) -> Tensor:
    return torch.cat((x, torch.full((x.size(0), columns), PAD)), 1)


class Batches:
    """As a list or a loader of data: every `iter` begins anew, which a generator would hide. `next` goes on."""

    def __init__(self, begin: Callable[[], Iterator[tuple[Tensor, Tensor]]]) -> None:
        self.begin = begin
        self.begun = begin()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self.begin()

    def __next__(self) -> tuple[Tensor, Tensor]:
        return next(self.begun)


class Spied:
    """A model that is trained, watched: in which mode it runs, what it gets, which rates and parameters are used."""

    def __init__(
        self, run: Run, source: Tensor, target: Tensor, steps: int, dropout: float = 0.0, growing: bool = False
    ) -> None:
        sizes = run.sizes
        torch.default_generator.manual_seed(1)
        self.target = target
        # where dropout is asked about it comes in evaluation, as from a file: training has to be turned on
        self.model = run.ours["Transformer"](sizes.V, sizes.D, sizes.H, sizes.F, 1, dropout).train(not dropout)
        self.modes: list[bool] = []
        self.rates: list[float] = []
        self.trained: set[int] = set()
        self.optimizers: list[torch.optim.Optimizer] = []
        self.widths: list[int] = []  # of the sources that the encoder was given
        self.backwards = False  # whether the decoder was first given the target from its second token on
        self.says: list[Tensor] = []  # what came out of it, each time
        self.taken = 0
        with torch.no_grad():
            self.later = self.model.vectors(target[:, 1:])
        # on the stacks, because a loop may call `encode` and `decode` itself
        calls = [
            self.model.encoder.register_forward_pre_hook(self._encoded),
            self.model.decoder.register_forward_pre_hook(self._decoded),
            self.model.decoder.register_forward_hook(self._said),
        ]
        hook = register_optimizer_step_pre_hook(self._stepped)
        try:
            given = Batches(lambda: self._batches(source, target, steps, growing))
            self.losses = run.train(self.model, given, steps, WARMUP)
        finally:
            for one in (hook, *calls):
                one.remove()

    def _batches(self, source: Tensor, target: Tensor, steps: int, growing: bool) -> Iterator[tuple[Tensor, Tensor]]:
        for number in range(2 * steps + 2):
            self.taken += 1
            yield wider(source, number) if growing else source.clone(), target.clone()

    def _encoded(self, module: Any, arguments: Any) -> None:
        self.widths.append(arguments[0].size(1) if arguments else -1)

    def _decoded(self, module: Any, arguments: Any) -> None:
        self.modes.append(module.training)
        if len(self.modes) == 1 and arguments:
            self.backwards = arguments[0].shape == self.later.shape and torch.allclose(arguments[0], self.later)

    def _said(self, module: Any, arguments: Any, output: Tensor) -> None:
        self.says.append((output @ self.model.embedding.weight.T).detach())

    def _stepped(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])
        if not any(optimizer is known for known in self.optimizers):
            self.optimizers.append(optimizer)
        self.trained |= {id(p) for group in optimizer.param_groups for p in group["params"]}


def spied(run: Run, steps: int, source: int = 0, target: int = 0, dropout: float = 0.0, growing: bool = False) -> Spied:
    """The batch with so many more columns of padding, again and again; remembered, because several questions are
    about it, and all are asked once more to find the cause."""
    known = getattr(run.train, "__dict__", {}).setdefault("_spied", {})
    key = (steps, source, target, dropout, growing)
    if key not in known:
        known[key] = Spied(run, wider(SOURCE, source), wider(TARGET, target), steps, dropout, growing)
    found = known[key]
    assert isinstance(found, Spied)
    return found


def learned(run: Run) -> Spied:
    return spied(run, STEPS)


def returns_losses(run: Run) -> dict[str, Any] | None:
    losses = learned(run).losses
    right = isinstance(losses, list) and all(isinstance(loss, float) for loss in losses) and len(losses) == STEPS
    if right:
        return None
    kind = type(losses[0]).__name__ if isinstance(losses, list) and losses else type(losses).__name__
    got = f"a list of {len(losses)} {kind}s" if isinstance(losses, list) else f"{kind}"
    return {
        "called": f"train(model, batches, {STEPS}, {WARMUP})",
        "got": got,
        "wanted": f"a list of {STEPS} floats, the loss of each step",
        "count": len(losses) if isinstance(losses, list) else -1,
        "tensors": kind == "Tensor",
        "kind": "shapes",
    }


def reports_each_loss(run: Run) -> dict[str, Any] | None:
    """Are the losses those of the updates, by whatever smoothing? The first says which it is, the others must agree."""
    trained = learned(run)
    labels = trained.target[:, 1:]
    if len(trained.says) != STEPS or trained.says[0].shape[:2] != labels.shape:
        return None
    right, even = [], []
    for logits in trained.says:
        log_p = logits.log_softmax(-1)
        right.append(-log_p.gather(-1, labels[..., None])[..., 0][labels != PAD].mean().item())
        even.append(-log_p.mean(-1)[labels != PAD].mean().item())
    losses = trained.losses
    smoothing = (losses[0] - right[0]) / (even[0] - right[0])
    if not -0.01 < smoothing < 0.6:
        return None  # another loss: told by what was learned
    expected = [(1 - smoothing) * a + smoothing * b for a, b in zip(right, even, strict=True)]
    wrong = next((n for n in range(STEPS) if abs(losses[n] - expected[n]) > 0.02 * expected[n] + 1e-3), None)
    if wrong is None:
        return None
    return {
        "got": f"{losses[wrong]:.4g} at step {wrong + 1}",
        "wanted": f"{expected[wrong]:.4g}, the loss of that update",
    }


def starts_near_guessing(run: Run) -> dict[str, Any] | None:
    losses = learned(run).losses
    first, guess = losses[0], math.log(run.sizes.V)
    if abs(first - guess) < 1.8:
        return None
    return {"got": f"a first loss of {first:.3g}", "wanted": f"about ln V = {guess:.3g}: it knows nothing yet"}


def learns_by_heart(run: Run) -> dict[str, Any] | None:
    """What the model says at each place of the batch it was trained on, with the right tokens before it."""
    trained = learned(run)
    trained.model.eval()
    with torch.no_grad():
        said = trained.model(SOURCE, TARGET[:, :-1], SOURCE != PAD).argmax(-1)
    real = TARGET[:, 1:] != PAD
    share = (said == TARGET[:, 1:])[real].double().mean().item()
    if share > 0.9:
        return None
    repeats = (said == TARGET[:, :-1])[real].double().mean().item()
    moved = len(trained.rates)
    return {
        "called": f"train(model, one batch again and again, {STEPS}, {WARMUP})",
        "got": f"{share:.0%} of the batch's own tokens right" + (f", {moved} updates" if moved != STEPS else ""),
        "wanted": "all of them: one batch can be learned by heart",
        "repeats": repeats,
        "updates": moved,
        "backwards": trained.backwards,
        "optimizers": [type(optimizer).__name__ for optimizer in trained.optimizers],
        "offset_two": (said[:, :-1] == TARGET[:, 2:])[real[:, 1:]].double().mean().item(),
    }


def ends_in_evaluation(run: Run) -> dict[str, Any] | None:
    model = spied(run, 3).model
    if not model.training:
        return None
    return {"got": "model.training is True afterwards", "wanted": "model.eval(): it is to be used now"}


def trains_in_training_mode(run: Run) -> dict[str, Any] | None:
    modes = spied(run, 3, dropout=0.1).modes
    if modes and all(modes):
        return None
    return {"got": "the model ran in evaluation, without dropout", "wanted": "model.train() before the first step"}


def rates_follow_noam(run: Run) -> dict[str, Any] | None:
    rates = learned(run).rates
    wanted = [run.ours["noam"](step, run.sizes.D, WARMUP) for step in range(1, len(rates) + 1)]
    if rates and all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(rates, wanted, strict=True)):
        return None
    if not rates:
        return None  # no optimizer of torch's: told by what was learned
    return {
        "got": "rates " + ", ".join(f"{rate:.3g}" for rate in rates[:4]) + ", …",
        "wanted": ", ".join(f"{rate:.3g}" for rate in wanted[:4]) + ", … (noam, step from 1)",
        "constant": len(set(rates)) == 1,
        "first_zero": rates[0] == 0,
        "twice": len(rates) >= 2 * STEPS,
        "late": len(rates) > 2 and math.isclose(rates[0], wanted[1], rel_tol=1e-3),
    }


def every_parameter_trained(run: Run) -> dict[str, Any] | None:
    watched = learned(run)
    missed = [name for name, parameter in watched.model.named_parameters() if id(parameter) not in watched.trained]
    if not missed or not watched.rates:
        return None
    return {
        "got": f"{missed[0]} is not in the optimizer",
        "wanted": "model.parameters(), all of them",
        "missed": missed,
    }


def one_optimizer(run: Run) -> dict[str, Any] | None:
    count = len(learned(run).optimizers)
    if count <= 1:
        return None
    return {"got": f"{count} optimizers in {STEPS} steps", "wanted": "one, which remembers the steps before"}


def padding_changes_nothing(run: Run) -> dict[str, Any] | None:
    """The same batch with more padding: the same losses."""
    plain = spied(run, 3).losses
    for name, columns in (("source", (2, 0)), ("target", (0, 2))):
        more = spied(run, 3, *columns).losses
        if abs(more[1] - plain[1]) > 1e-3 or abs(more[0] - plain[0]) > 1e-3:
            return {
                "called": f"train on a batch, and on the same with two more columns of padding in the {name}",
                "got": f"losses {plain[0]:.4g} and {more[0]:.4g}",
                "wanted": "the same loss: padding is nothing",
                "side": name,
            }
    return None


def batches_used(run: Run) -> dict[str, Any] | None:
    """Does each step take a batch of its own?"""
    watched = spied(run, 5, growing=True)
    seen = sorted(set(watched.widths))
    if 5 <= watched.taken <= 6 and len(watched.modes) == 5 and len(seen) >= 5:
        return None
    got = f"{watched.taken} batches for 5 steps"
    if len(seen) < watched.taken:
        got += f", and {len(seen)} of them {'was' if len(seen) == 1 else 'were'} given to the model"
    return {"got": got, "wanted": "one batch a step", "taken": watched.taken, "seen": len(seen)}


def asked(finding: str, ask: Any, message: str) -> Property:
    return Property(finding, "train", ask, message, rejects=True, sizes=SIZES)


EXERCISE = Exercise(
    name="train",
    question="Does it learn?",
    about="Everything is there: for each batch, shift the target, run the model, compute the loss, update the weights "
    "at the rate of the step. At first, a model that knows nothing has a loss near ln V; one batch, seen again and "
    "again, can be learned by heart; and copying, the smallest task that needs all of it, within 1,000 steps.",
    section="section 5",
    shapes="""
    batches gives pairs of source (B, T) and target (B, S + 1), filled up with PAD; a target is BOS, its tokens, EOS
    -> a list of floats: the loss of each of the `steps` updates, one batch a step
    Adam over all parameters (the paper: betas 0.9 and 0.98, eps 1e-9), at noam's rate, the first step being 1.
    Train in training mode, in whichever the model comes; leave it in evaluation.
    Padding of the source is hidden, and that of the target does not count.
    """,
    allowed="everything you wrote, and torch.optim",
    parts=("train",),
    trials=(),
    properties=(
        asked("update.result", returns_losses, "the losses do not come back as they should"),
        asked("update.batches", batches_used, "the batches are not used one a step"),
        asked("optimizer.missing", every_parameter_trained, "some parameters are never trained"),
        asked("optimizer.anew", one_optimizer, "the optimizer is made anew while training"),
        asked("schedule.other", rates_follow_noam, "the learning rates are not those of the schedule"),
        asked("initial.loss", starts_near_guessing, "the first loss is not that of guessing"),
        asked("update.unlearned", learns_by_heart, "one batch is not learned by heart"),
        asked("mode.training", trains_in_training_mode, "training runs in evaluation mode"),
        asked("mode.left", ends_in_evaluation, "the model is left in training mode"),
        asked("padding.content", padding_changes_nothing, "padding changes the loss"),
        asked("update.reported", reports_each_loss, "the losses are not those of the updates"),
    ),
    mistakes=MISTAKES,
    hints=(
        "What happens to one batch, from its two tensors to changed weights, and in which order?",
        "inputs and labels are (B, S), logits (B, S, V), the loss is one number; a step's number starts at 1.",
        "For each batch: `inputs, labels = shift(target)`, loss(model(source, inputs, source != PAD), labels, PAD), "
        "update(…, noam(step, width, warmup)). `enumerate(islice(batches, steps), 1)` counts the steps.",
    ),
    after="Your Transformer learns. Train it on a task, and save it as a run that every command knows: "
    "clearhead learn finish",
    lab="warm-up",
    ours="clearhead/training/loop.py",
    seconds=30.0,
)
