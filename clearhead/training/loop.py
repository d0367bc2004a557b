"""The training loop: batch, loss, gradient, update. Everything else is attached from outside.

An update is a function of (seed, step): which examples it sees follows from the plan of its epoch, and the random
numbers of its dropout from a hash of the seed, the step, the rank and the micro-batch, drawn anew each time. So nothing
needs to be remembered but weights, optimizer and a few scalars, and a run that was interrupted ends in the same bits as
one that was not. Callbacks run after each update, in order; each sees the whole loop and may ask it to stop.
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from clearhead.data.batch import IGNORE, Batch, Dataset
from clearhead.errors import InputError
from clearhead.model import Transformer
from clearhead.training.config import TrainingSettings
from clearhead.training.distributed import Ranks, pick_precision, whole
from clearhead.training.loss import summed_loss
from clearhead.training.optimizer import build_optimizers
from clearhead.training.schedule import learning_rate

PRECISION = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
GROWTH = 2000  # float16: so many updates in a row without an overflow double the loss scale


@dataclass
class Progress:
    """The few scalars a run remembers besides weights and optimizer."""

    step: int = 0  # updates done
    epoch: int = 0
    block: int = 0  # of the epoch, and …
    batch: int = 0  # … batches of it already seen
    best: float | None = None  # the best validation so far, by the measure of the settings, and when it was …
    best_step: int = 0
    stale: int = 0  # … and how many validations have passed since
    scale: float = 65_536.0  # float16: the loss is multiplied by this, so that small gradients do not vanish
    steady: int = 0  # float16: updates since the scale last changed
    seconds: float = 0.0  # spent training, over all interruptions
    loss_sum: float = 0.0  # of the updates since the last report was due, …
    loss_count: int = 0  # … and how many they are
    batches: str = ""  # what the batches of the epoch depend on, and what validations do, as sums (resuming.py)
    measured: str = ""


@dataclass
class Update:
    """What the last update was like, for whoever reports it."""

    loss: float = math.nan  # per token, smoothed as trained
    mean_loss: float = math.nan  # the same, over the updates since the last report was due
    rate: float = 0.0
    norm: float = math.nan  # of the gradient, before clipping
    tokens: int = 0  # that were predicted
    skipped: bool = False  # nothing was changed: there was nothing to predict, or float16's scale was too high
    validation: dict[str, float] = field(default_factory=dict)  # filled in after updates that are followed by one


class Objective(nn.Module):
    """The model and its loss as one module, which is what DDP and FSDP want to wrap."""

    def __init__(self, model: Transformer, smoothing: float, precision: torch.dtype) -> None:
        super().__init__()
        self.model, self.smoothing, self.precision = model, smoothing, precision
        self.hidden: Callable[..., Tensor] = model.hidden

    def forward(self, batch: Batch, answers: bool = False) -> Tensor:
        """The summed loss, in evaluation unsmoothed, where the number should mean something. With `answers`, three
        sums: the loss, the labels that are the model's first choice, and the sequences in which all of them are."""
        with torch.autocast(batch.labels.device.type, self.precision, enabled=self.precision != torch.float32):
            hidden = self.hidden(**batch.inputs)
            if self.precision != torch.float32:
                hidden = hidden.to(self.precision)  # else the loss, which is most of a small model, stays in 32 bits
            counted = batch.labels != IGNORE
            wanted = batch.labels[counted]
            choices = torch.empty_like(wanted) if answers else None
            loss = summed_loss(self.model, hidden, batch.labels, self.smoothing if self.training else 0.0, choices)
            if choices is None:
                return loss
            if batch.labels.dim() == 1:  # classes of whole texts: how often each is right, predicted and wanted
                tally = [
                    torch.bincount(one, minlength=self.model.config.head.classes)
                    for one in (wanted[choices == wanted], choices, wanted)
                ]
                return torch.cat([loss[None], *tally])
            right = torch.ones_like(counted)  # where nothing counts, nothing is wrong
            right[counted] = choices == wanted
            return torch.stack([loss, (choices == wanted).sum(), right.view(len(right), -1).all(1).sum()])


class Loop:
    """Trains a model on a dataset, update by update, until `settings.steps` or until a callback sets `stop`."""

    def __init__(
        self,
        model: Transformer,
        data: Dataset,
        settings: TrainingSettings,
        ranks: Ranks | None = None,
        progress: Progress | None = None,
        callbacks: Sequence["Callback"] = (),
    ) -> None:
        self.ranks = ranks or Ranks()
        self.model, self.data, self.settings = model.to(self.ranks.device), data, settings
        self.progress, self.update = progress or Progress(), Update()
        self.callbacks = list(callbacks)
        self.stop = ""  # a reason ends the loop after the current update
        precision = PRECISION[pick_precision(settings.precision, self.ranks.device)]
        self.objective = Objective(model, settings.label_smoothing, precision)
        self.wrapped = self.ranks.wrap(self.objective, stacked_layers(model))
        self.optimizers = build_optimizers(model, settings)
        self._plan: list[list[int]] = []
        self._planned = (-1, -1)  # the epoch and block it is of

    def run(self) -> None:
        """All updates that are left. Ranks agree on stopping, so that none waits for one that has left."""
        while self.progress.step < self.settings.steps and not self.agreed_to_stop():
            started = time.perf_counter()
            self.one_update()
            self.progress.seconds += time.perf_counter() - started
            for callback in self.callbacks:
                callback(self)

    def one_update(self) -> None:
        """Forward, backward, clip, step."""
        settings, progress, ranks = self.settings, self.progress, self.ranks
        step, indices = progress.step + 1, self.next_batch()
        pieces = [indices[i :: ranks.count * settings.accumulate] for i in range(ranks.count * settings.accumulate)]
        batches = [self.collate(piece, indices) for piece in pieces[ranks.rank :: ranks.count]]
        tokens = ranks.sum(sum(batch.count for batch in batches))[0]
        self.wrapped.train()
        total = torch.zeros((), device=ranks.device)
        for micro, batch in enumerate(batches):
            torch.manual_seed(seed_of(settings.seed, step, ranks.rank, micro))
            with ranks.accumulating(self.wrapped, last=micro == len(batches) - 1):
                loss = self.wrapped(batch)
                # averaged over ranks by DDP and FSDP, hence times their number: the sum over all, per token
                (loss * (ranks.count / max(1, tokens) * self.scale)).backward()
            total += loss.detach()
        norm = self.clip()
        loss = ranks.sum(float(total))[0] / tokens if tokens else math.nan
        self.update = Update(
            loss=loss,
            rate=learning_rate(step, settings, self.model.config.d_model),
            norm=norm,
            tokens=int(tokens),
            skipped=not tokens or not self.finite(step, norm, indices),
            mean_loss=self.mean_loss(step, loss),
        )
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.update.rate * group.get("factor", 1.0)
            if not self.update.skipped:
                optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        progress.step, progress.batch = step, progress.batch + 1

    def mean_loss(self, step: int, loss: float) -> float:
        """The mean loss up to this step, from after the last one that was reported; NaN if nothing was predicted."""
        progress = self.progress
        if not math.isnan(loss):
            progress.loss_sum, progress.loss_count = progress.loss_sum + loss, progress.loss_count + 1
        mean = progress.loss_sum / progress.loss_count if progress.loss_count else math.nan
        if self.settings.reports(step):
            progress.loss_sum, progress.loss_count = 0.0, 0
        return mean

    def next_batch(self) -> list[int]:
        """The examples of the next global batch; epochs follow one another, each in its own order, block by block."""
        progress, settings = self.progress, self.settings
        while self._planned != (progress.epoch, progress.block) or progress.batch >= len(self._plan):
            if self._planned == (progress.epoch, progress.block):
                progress.block, progress.batch = progress.block + 1, 0
            if progress.block >= self.data.blocks:
                progress.epoch, progress.block = progress.epoch + 1, 0
            self._plan = self.data.plan(settings.seed, progress.epoch, settings.max_tokens, progress.block)
            self._planned = progress.epoch, progress.block
        return self._plan[progress.batch]

    def collate(self, piece: list[int], indices: list[int]) -> Batch:
        """A rank's share of the batch. Fewer examples than shares: one is computed again, and counts nothing."""
        batch = self.data.collate(piece or indices[:1], self.settings.seed, self.progress.epoch)
        if not piece:
            batch = Batch(batch.inputs, torch.full_like(batch.labels, IGNORE), 0)
        return batch.to(self.ranks.device)

    @property
    def scale(self) -> float:
        return self.progress.scale if self.settings.precision == "float16" else 1.0

    def clip(self) -> float:
        """The norm of the whole gradient, which is then scaled down to `clip` if it is larger."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.scale != 1:
            torch._foreach_div_(gradients, self.scale)
        norm = whole(torch.nn.utils.get_total_norm(gradients))
        if self.settings.clip:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        return float(norm)

    def finite(self, step: int, norm: float, indices: list[int]) -> bool:
        """Whether to update. float16 lowers its scale and goes on; otherwise a non-finite gradient ends the run."""
        progress = self.progress
        if self.settings.precision == "float16":
            progress.steady = progress.steady + 1 if math.isfinite(norm) else 0
            if not math.isfinite(norm) and progress.scale > 1:
                progress.scale /= 2
                return False
            if progress.steady == GROWTH:
                progress.scale, progress.steady = progress.scale * 2, 0
        if math.isfinite(norm):
            return True
        raise InputError(
            f"the gradient of step {step} is not finite (norm {norm}); nothing was updated. The batch: number "
            f"{progress.batch} of epoch {progress.epoch}, {len(indices)} examples, first {self.data.name(indices[0])}. "
            "Try a lower training.peak or factor, a longer training.warmup, training.clip = 1, "
            "or training.precision = 'float32'"
        )

    def agreed_to_stop(self) -> bool:
        """True on every rank as soon as one rank has a reason."""
        return self.ranks.sum(bool(self.stop))[0] > 0


Callback = Callable[[Loop], None]


def seed_of(*parts: int | str) -> int:
    """63 bits that depend on every part, for torch.manual_seed."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big") >> 1


def stacked_layers(model: Transformer) -> list[nn.Module]:
    """The layers of the encoder and the decoder, the units that FSDP shards."""
    stacks = (getattr(model, "encoder", None), getattr(model, "decoder", None))
    return [layer for stack in stacks if stack is not None for layer in stack.layers]
