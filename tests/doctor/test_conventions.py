"""What is done in more than one way is no error: losses, averages, tables, buckets, padding. Their real bugs are."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.describe import Description
from tests.doctor.standins import Small, masked, plain
from tests.doctor.test_honest_arms import ids, next_token_loss

VOCAB, PAD = 61, 0


def spec(**fields: Any) -> doctor.CausalLM:
    return doctor.CausalLM(**{"build": Small, "forward": plain, **fields})


def found(description: Description, *probes: str) -> dict[str, str]:
    return ids(doctor.check(description, only=probes))


# -- losses


def smoothed_targets(labels: Tensor, others: int, pad_column: bool) -> Tensor:
    targets = torch.full((labels.numel(), VOCAB), 0.1 / others)
    targets.scatter_(1, labels[:, None], 0.9)
    if pad_column:
        targets[:, PAD] = 0
    return targets.masked_fill(labels[:, None] == PAD, 0.0)


def divergence(others: int = VOCAB - 2, pad_column: bool = True, reduction: str = "sum", per_token: bool = True) -> Any:
    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        logp = model(tokens[:, :-1]).log_softmax(dim=-1).flatten(0, 1)
        labels = tokens[:, 1:].flatten()
        value = F.kl_div(logp, smoothed_targets(labels, others, pad_column).to(logp), reduction=reduction)
        return value / (labels != PAD).sum() if per_token else value

    return loss


def summed(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens[:, :-1]).flatten(0, 1)
    return F.cross_entropy(logits, tokens[:, 1:].flatten(), ignore_index=PAD, reduction="sum", label_smoothing=0.1)


@pytest.mark.parametrize(
    ("loss", "smoothing", "wanted"),
    [
        (divergence(), 0.1, {}),  # over V - 2 tokens, the column of padding zero
        (divergence(VOCAB - 1, False), 0.1, {}),
        (divergence(per_token=False), 0.1, {"loss.other": "note"}),  # a sum
        (divergence(reduction="batchmean", per_token=False), 0.1, {"loss.other": "error"}),  # counts padding
        (summed, 0.1, {"loss.other": "note"}),
        (summed, 0.0, {"loss.other": "note"}),  # and smoothing that the description leaves out
        (divergence(), 0.3, {"loss.other": "error"}),  # another smoothing than declared
    ],
)
def test_forms_of_losses_are_read(loss: Any, smoothing: float, wanted: dict[str, str]) -> None:
    assert found(spec(loss=loss, pad=PAD, label_smoothing=smoothing), "loss") == wanted


def test_a_reduction_that_is_declared_is_held_to() -> None:
    described = spec(loss=summed, pad=PAD, label_smoothing=0.1)
    assert found(replace(described, reduction="sum"), "loss") == {}
    assert found(replace(described, reduction="mean"), "loss") == {"loss.other": "error"}


def test_each_form_has_its_own_floor() -> None:
    """A divergence falls below the entropy of the tokens and is healthy, unless the model sees them."""
    described = spec(loss=divergence(), pad=PAD, label_smoothing=0.1)
    assert found(described, "floor") == {}
    seeing = replace(described, build=lambda vocab=VOCAB: Small(vocab, causal=False, layers=1))
    assert found(seeing, "floor") == {"floor.beaten": "error"}


def test_a_floor_is_what_the_best_guess_costs() -> None:
    from clearhead.doctor.candidate_losses import known_forms

    choices = torch.arange(3, 11)
    for form in known_forms(VOCAB, PAD, 0.1):
        logits = torch.zeros(VOCAB, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([logits], max_iter=100, line_search_fn="strong_wolfe")
        targets = form.targets[choices]
        taken_off = form.entropy()[choices].mean() if form.divergence else 0.0

        def cost(targets: Tensor = targets, taken_off: Any = taken_off, logits: Tensor = logits) -> Tensor:
            return -(targets * logits.log_softmax(dim=0)).sum(dim=1).mean() - taken_off

        def closure(logits: Tensor = logits, cost: Any = cost) -> Tensor:
            logits.grad = None
            value = cost()
            value.backward()
            return value

        optimizer.step(closure)
        assert cost().item() == pytest.approx(form.floor(choices), abs=2e-3), form.smoothing


def test_the_untrained_loss_of_an_untied_head_is_a_note() -> None:
    def build(vocab: int = VOCAB) -> nn.Module:
        model = Small(vocab)
        nn.init.normal_(model.head.weight, std=0.4)
        return model

    assert found(spec(build=build), "initial") == {"initial.loss": "note"}


# -- updates


def accumulate(weigh: bool = False, clear: bool = True, only: int | None = None) -> Any:
    def update(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> None:
        for group in optimizer.param_groups:
            group["lr"] = 1e-3  # a schedule inside the step
        if clear:
            optimizer.zero_grad()
        total = sum(int((batch[:, 1:] != PAD).sum()) for batch in batches)
        for batch in batches[:only]:
            count = int((batch[:, 1:] != PAD).sum())
            (pad_loss(model, batch) * (count / total if weigh else 1 / len(batches))).backward()
        optimizer.step()

    return update


def pad_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)


STUBBORN = {"build": lambda vocab=VOCAB, dropout=0.1: Small(vocab, dropout=dropout, attention_dropout=0.3)}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"update": accumulate()}, {"update.direction": "note"}),
        ({"update": accumulate(), "equal_micro_batches": True}, {}),
        ({"update": accumulate(), "equal_micro_batches": False}, {"update.direction": "error"}),
        ({"update": accumulate(), "pad": PAD}, {"update.direction": "error"}),
        ({"update": accumulate(weigh=True), "pad": PAD}, {}),
        ({"update": accumulate(clear=False), "equal_micro_batches": True}, {"update.kept": "error"}),
        # the first micro-batch alone, found though attention dropout cannot be switched off by build
        ({"update": accumulate(only=1), **STUBBORN}, {"update.direction": "error"}),
    ],
)
def test_updates(fields: dict[str, Any], wanted: dict[str, str]) -> None:
    described = spec(loss=pad_loss if "pad" in fields else next_token_loss, **fields)
    assert found(described, "update") == wanted


def test_what_turns_every_step_is_not_taken_for_a_gradient_that_was_kept() -> None:
    def update(model: Any, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> None:
        accumulate()(model, optimizer, batches)
        optimizer.zero_grad()
        for batch in batches:
            next_token_loss(model, batch).backward()
        model.head.weight.grad *= 5  # one layer learns faster than the others
        optimizer.step()

    described = spec(loss=next_token_loss, update=update, equal_micro_batches=True)
    assert "update.kept" not in found(described, "update")
    assert found(described, "update")["update.other"] == "warning"


def test_a_loop_without_accumulation_is_asked_with_one_batch() -> None:
    def update(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Tensor]) -> None:
        (batch,) = batches
        optimizer.zero_grad()
        next_token_loss(model, batch).backward()
        optimizer.step()

    assert found(spec(loss=next_token_loss, update=update), "update") == {"update.single": "note"}


def test_an_encoders_micro_batches_have_labels() -> None:
    def loss(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())

    def update(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[tuple[Tensor, Tensor]]) -> None:
        optimizer.zero_grad()
        for batch in batches[-1:]:
            loss(model, *batch).backward()
        optimizer.step()

    described = doctor.Encoder(build=Small, forward=plain, loss=loss, update=update)
    assert found(described, "update") == {"update.direction": "error"}


# -- tables, biases, buckets


def test_a_table_of_positions_that_is_sliced_is_used() -> None:
    class Deaf(Small):
        """Half the features of every feed-forward layer go nowhere."""

        def __init__(self, vocab: int = VOCAB) -> None:
            super().__init__(vocab)
            for layer in self.layers:
                layer.get_submodule("up").register_forward_hook(
                    lambda module, given, out: out * (torch.arange(96) < 48)
                )

    assert found(spec(), "parameters") == {}
    assert "parameters.unused-rows" in found(spec(build=Deaf), "parameters")


def test_alibi_may_come_as_a_floating_mask() -> None:
    class Steep(Small):
        def bias(self, distance: Tensor) -> Tensor:
            return 2 * super().bias(distance)

    def build(kind: Any) -> Any:
        return lambda vocab=VOCAB, layers=2: kind(vocab, layers=layers, heads=3, positions="alibi")

    assert found(spec(build=build(Small), positions="alibi"), "position") == {}
    assert "position.slopes" in found(spec(build=build(Steep), positions="alibi"), "position")


def test_far_distances_may_share_a_bucket() -> None:
    class Halved(Small):
        """Neighbours really collide: two by two they stand in one place."""

        def bias(self, distance: Tensor) -> Tensor:
            place = torch.arange(distance.size(1)) // 2
            return super().bias(place[:, None] - place[None, :])

    def described(kind: Any) -> doctor.Encoder:
        def build(vocab: int = VOCAB, layers: int = 2) -> nn.Module:
            return kind(vocab, layers=layers, positions="buckets", causal=False)

        return doctor.Encoder(build=build, forward=plain, positions="relative")

    assert found(described(Small), "position", "length") == {}
    assert "position.collide" in found(described(Halved), "position")


def test_tokens_that_saturated_attention_does_not_hear_are_not_lost() -> None:
    """With very large scores each query listens to one key, and the others get next to nothing."""

    def build(vocab: int = VOCAB, layers: int = 2, max_length: int = 300) -> nn.Module:
        model = Small(vocab, layers=layers, max_length=max_length)
        with torch.no_grad():
            for layer in model.layers:
                layer.get_parameter("qkv.weight")[:48] *= 12
        return model

    assert found(spec(build=build), "position", "length") == {}


def test_a_first_token_that_is_treated_apart_is_no_absolute_position() -> None:
    class Smear(Small):
        """Every token but the first has a share of the one before it."""

        def step(self, tokens: Tensor, real: Tensor | None, past: Any) -> Any:
            handle = self.embedding.register_forward_hook(
                lambda module, given, out: out + F.pad(out[:, :-1].flip(-1), (0, 0, 1, 0))
            )
            try:
                return super().step(tokens, real, past)
            finally:
                handle.remove()

    def build(kind: Any, positions: str) -> Any:
        return lambda vocab=VOCAB, layers=2: kind(vocab, layers=layers, positions=positions)

    assert found(spec(build=build(Smear, "alibi"), positions="alibi"), "position") == {}
    assert "position.not-relative" in found(spec(build=build(Small, "absolute"), positions="rotary"), "position")


# -- padding


def test_left_padding_with_absolute_positions_is_a_note_unless_it_is_declared() -> None:
    described = spec(forward=masked, positions="absolute")
    wanted = {"padding.left": "note"}
    assert {id: severity for id, severity in found(described, "padding").items() if id == "padding.left"} == wanted
    assert found(replace(described, left_padded=True), "padding")["padding.left"] == "error"


def test_padding_may_be_found_by_its_id() -> None:
    def build(pad: int | None) -> Any:
        return lambda vocab=VOCAB: Small(vocab, causal=False, pad=pad)

    right = doctor.Encoder(build=build(2), forward=plain, pad=2, pad_by_id=True)
    assert found(right, "padding") == {}
    assert found(replace(right, build=build(None)), "padding") == {"padding.right": "error"}


def test_source_and_target_may_have_paddings_of_their_own() -> None:
    class Pair(nn.Module):
        def __init__(self, vocab: int = VOCAB) -> None:
            super().__init__()
            self.source, self.target = Small(vocab, causal=False), Small(vocab)

        def forward(self, source: Tensor, target: Tensor, real: Tensor) -> Tensor:
            read = self.source(source, real).masked_fill(~real[:, :, None], 0.0)
            return self.target(target) + read.sum(dim=1, keepdim=True) / real.sum(dim=1)[:, None, None]

    def forward(model: nn.Module, source: Tensor, target: Tensor, source_real: Tensor | None = None) -> Tensor:
        return model(source, target, torch.ones_like(source, dtype=torch.bool) if source_real is None else source_real)

    def loss(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        logits = model(source, target[:, :-1], source != 1)
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=2)

    described = doctor.EncoderDecoder(build=Pair, forward=forward, loss=loss, pad=(1, 2))
    assert found(described, "loss", "invariance", "padding") == {}
    assert "loss.other" in found(replace(described, pad=(1, 0)), "loss")


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_of_padding_alone_is_worth_a_warning_only(causal: bool) -> None:
    """No loader makes a row without any token; padding on the left is ordinary, and then a query must see something."""

    class Mean(nn.Module):
        def __init__(self, vocab: int = VOCAB) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(vocab, 24), nn.Linear(24, vocab)

        def forward(self, tokens: Tensor, real: Tensor | None = None) -> Tensor:
            x, length = self.embedding(tokens), tokens.size(1)
            scores = x @ x.transpose(1, 2)
            if causal:
                scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), -math.inf)
            if real is not None:
                scores = scores.masked_fill(~real[:, None, :], -math.inf)
            return self.head(x + scores.softmax(dim=-1) @ x)

    kind = doctor.CausalLM if causal else doctor.Encoder
    wanted = {"finite.padding": "error" if causal else "warning"}
    assert found(kind(build=Mean, forward=masked), "finite") == wanted


# -- others


def test_outputs_that_are_scaled_on_one_path_are_told_as_such() -> None:
    described = spec(paths={"halved": lambda model, tokens: model(tokens) / 2})
    (finding,) = doctor.check(described, only=["paths"]).findings
    assert "they are 0.5 times forward's" in finding.message


def test_a_model_for_inference_only_is_not_detached() -> None:
    described = spec(forward=torch.no_grad()(plain))
    assert found(described, "parameters") == {"parameters.inference": "note"}
    with_loss = replace(described, loss=next_token_loss)
    assert found(with_loss, "parameters")["parameters.detached"] == "error"


def test_notes_count_for_nothing() -> None:
    report = doctor.check(spec(loss=summed, pad=PAD, label_smoothing=0.1), only=["loss"])
    assert report.healthy
    assert report.passed == ("loss",)
    assert report.causes == ()
    assert "healthy, as far as 1 probes can see; 1 note" in str(report)
    assert math.isfinite(report.seconds["loss"])
