"""Nothing a subject raises escapes, and what could not be asked is said: crashes, refusals, contradictions."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead import doctor
from clearhead.doctor.finding import Report
from clearhead.doctor.subject import Subject
from clearhead.errors import InputError
from tests.doctor.standins import Small, cached, plain


def ids(report: Report) -> dict[str, str]:
    return {finding.id: finding.severity for finding in report.findings}


def next_token_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def test_a_model_that_fails_at_one_length_is_ill_and_the_line_is_named() -> None:
    def forward(model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens) + torch.zeros(6 if tokens.size(1) == 7 else 1, 1)

    report = doctor.check(doctor.CausalLM(build=Small, forward=forward), only=["mode", "prefix", "batch"])
    assert ids(report) == {"mode.raised": "error"}
    assert "zeros(6 if tokens.size(1) == 7" in report.findings[0].where[0]
    assert "raised RuntimeError as in mode" in report.not_armed["prefix"]
    assert report.passed == ()


def test_a_model_that_works_once_is_ill() -> None:
    class Once(Small):
        calls = 0

        def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
            self.calls += 1
            return super().forward(tokens) if self.calls == 1 else super().forward(tokens)[:, [tokens.size(1)]]

    report = doctor.check(doctor.CausalLM(build=Once, forward=plain), only=["mode"])
    assert ids(report) == {"mode.raised": "error"}


def test_outputs_that_lose_an_axis_for_one_row_are_an_error() -> None:
    def forward(model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens).squeeze(0)

    report = doctor.check(doctor.CausalLM(build=Small, forward=forward), only=["future", "batch", "prefix"])
    assert ids(report) == {"future.raised": "error"}
    assert "forward returned shape (11, 61) for tokens of shape (1, 11)" in report.findings[0].message


def test_what_one_view_cannot_answer_hides_nothing_of_another() -> None:
    """Without layers to choose, order cannot be asked; that positions are not relative can."""

    def build(vocab: int = 61) -> nn.Module:
        return Small(vocab)

    described = doctor.CausalLM(build=build, forward=plain, positions="rotary")
    assert ids(doctor.check(described, only=["position"])) == {"position.not-relative": "error"}
    report = doctor.check(doctor.CausalLM(build=build, forward=plain), only=["position", "prefix"])
    assert "build takes no layers" in report.not_armed["position"]


def test_tokens_come_contiguous() -> None:
    def forward(model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens.view(-1).view(tokens.shape))

    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        tokens.view(-1)
        return next_token_loss(model, tokens)

    spec = doctor.CausalLM(build=Small, forward=forward, loss=loss)
    assert doctor.check(spec, only=["mode", "prefix", "batch", "loss", "invariance"]).findings == ()


def test_a_refusal_is_not_a_crash() -> None:
    def forward(model: nn.Module, tokens: Tensor) -> Tensor:
        assert tokens.size(1) > 1, "a single token is not for this model"
        return model(tokens)

    def never_seven(model: nn.Module, tokens: Tensor) -> Tensor:
        if tokens.size(1) == 7:
            raise ValueError("seven is not allowed")
        return model(tokens)

    assert doctor.check(doctor.CausalLM(build=Small, forward=forward), only=["prefix"]).passed == ("prefix",)
    report = doctor.check(doctor.CausalLM(build=Small, forward=never_seven), only=["mode", "future"])
    assert "the model refuses: forward raised ValueError" in report.not_armed["mode"]
    assert report.passed == ("future",)


def test_what_fails_in_float64_alone_is_asked_in_float32() -> None:
    def loss(model: nn.Module, tokens: Tensor) -> Tensor:
        logits = model(tokens[:, :-1]) @ torch.eye(61)  # a float32 constant, which float64 does not multiply with
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    report = doctor.check(doctor.CausalLM(build=Small, forward=plain, loss=loss), only=["loss", "invariance"])
    assert report.passed == ("loss", "invariance")


def broken_after_the_prompt(model: nn.Module, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
    logits, kept = cached(model, tokens, cache)
    return logits + (torch.zeros(3, 2, 1) @ torch.zeros(3, 1) if cache else 0), kept


def test_a_cache_that_raises_at_the_second_token_is_an_error() -> None:
    spec = doctor.CausalLM(build=Small, forward=plain, cached=broken_after_the_prompt)
    report = doctor.check(spec, only=["cache"])
    assert ids(report) == {"cache.raised": "error"}
    assert "after 1 tokens had gone through" in report.findings[0].message
    assert "if cache else 0" in report.findings[0].where[0]


def test_a_healthy_cache_passes_and_one_for_single_tokens_is_noted() -> None:
    def one_at_a_time(model: nn.Module, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        return cached(model, tokens.view(tokens.size(0), 1), cache)

    spec = doctor.CausalLM(build=Small, forward=plain, cached=cached)
    assert doctor.check(spec, only=["cache"]).findings == ()
    report = doctor.check(doctor.CausalLM(build=Small, forward=plain, cached=one_at_a_time), only=["cache"])
    assert ids(report) == {"cache.pieces": "note"}
    assert report.passed == ("cache",)


def test_a_cache_that_is_left_over_from_the_first_request_and_raises() -> None:
    left: list[Any] = []

    def shared(model: nn.Module, tokens: Tensor, cache: Any) -> tuple[Tensor, Any]:
        if cache is None and left and left[0][0][0].size(0) != tokens.size(0):
            torch.cat([left[0][0][0], left[0][0][0][:1]], dim=2)
        logits, kept = cached(model, tokens, cache)
        left[:] = [kept]
        return logits, kept

    report = doctor.check(doctor.CausalLM(build=Small, forward=plain, cached=shared), only=["cache"])
    assert ids(report) == {"cache.raised": "error"}


def greedy(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
    for _ in range(count):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(dim=-1)], dim=1)
    return tokens


def test_generate_may_take_one_row() -> None:
    def one_row(model: nn.Module, tokens: Tensor, count: int) -> list[int]:
        tokens.view(-1)[0].expand(5).view_as(tokens)  # raises for more than one row of five
        return greedy(model, tokens, count)[0].tolist()

    def wrong(model: nn.Module, tokens: Tensor, count: int) -> Tensor:
        return greedy(model, tokens.view(1, 5), count).index_fill(1, torch.tensor([7]), 4)

    def spec(generate: Any) -> doctor.CausalLM:
        return doctor.CausalLM(build=Small, forward=plain, generate=generate)

    assert doctor.check(spec(greedy), only=["generate"]).findings == ()
    assert ids(doctor.check(spec(one_row), only=["generate"])) == {"generate.rows": "note"}
    found = ids(doctor.check(spec(wrong), only=["generate"]))
    assert found == {"generate.not-greedy": "error", "generate.rows": "note"}


def test_a_translation_starts_with_one_token() -> None:
    def forward(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        return model(torch.cat([source, target], dim=1))[:, source.size(1) :]

    def generate(model: nn.Module, source: Tensor, start: Tensor, count: int) -> Tensor:
        target = start.view(source.size(0), 1)
        return greedy(model, torch.cat([source, target], dim=1), count)[:, source.size(1) :]

    spec = doctor.EncoderDecoder(build=Small, forward=forward, generate=generate)
    assert doctor.check(spec, only=["generate"]).findings == ()


def test_what_never_works_is_an_error_and_hides_nothing_else() -> None:
    def generate(model: Any, tokens: Tensor, count: int) -> Tensor:
        return model.there_is_no_such_method(tokens)

    spec = doctor.CausalLM(build=Small, forward=plain, generate=generate, cached=broken_after_the_prompt)
    found = ids(doctor.check(spec, only=["cache", "generate"]))
    assert found == {"cache.raised": "error", "generate.raised": "error"}


def test_a_mask_that_forward_never_takes_contradicts_the_description() -> None:
    def forward(model: nn.Module, tokens: Tensor, real: Tensor | None = None) -> Tensor:
        return model(tokens) if real is None else model(tokens, real[:, :3])

    with pytest.raises(InputError, match=r"forward with a padding mask raised RuntimeError .*it never worked"):
        doctor.check(doctor.CausalLM(build=Small, forward=forward), only=["padding"])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"positions": "learned"}, "positions='learned', wanted one of absolute, rotary"),
        ({"pad": 61}, "pad=61: the tokens are 0 to 60"),
        ({"pad": (0, 99)}, "the tokens are 0 to 60"),
        ({"pad_by_id": True}, "pad_by_id without pad"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0, wanted"),
        ({"update": lambda model, optimizer, batches: None}, "update without loss"),
        ({"reorder": lambda cache, rows: cache}, "reorder without cached"),
        ({"reduction": "average"}, "reduction='average', wanted one of mean, sum, rows"),
        ({"window": 0}, "window=0, wanted at least 1"),
    ],
)
def test_contradictions_are_told(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as told:
        doctor.check(doctor.CausalLM(build=Small, forward=plain, **fields))
    assert words in str(told.value)


def test_dropout_is_silenced_without_touching_the_model() -> None:
    class Stubborn(Small):
        def forward(self, tokens: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(F.dropout(tokens.float(), 0.5, self.training).long() * 0 + tokens)

    def build(vocab: int = 61, dropout: float = 0.1) -> nn.Module:
        return Stubborn(vocab, attention_dropout=0.3, dropout=dropout)

    subject = Subject(doctor.CausalLM(build=build, forward=plain))
    model, tokens = subject.without_dropout(), subject.tokens()
    assert [layer.attention_dropout for layer in model.layers] == [0.3, 0.3]  # type: ignore[union-attr]
    first, again = (subject.whole(model.train(), (tokens,)) for _ in range(2))
    assert torch.allclose(first, again, rtol=0, atol=1e-12)
    assert torch.allclose(first, subject.whole(model.eval(), (tokens,)), rtol=0, atol=1e-12)
    pristine = subject.raw(dropout=0.0).train()
    assert not torch.equal(subject.whole(pristine, (tokens,)), subject.whole(pristine, (tokens,)))


def test_masks_drawn_with_a_small_chance_are_left_alone() -> None:
    from clearhead.doctor.watch import Still

    torch.manual_seed(0)
    with Still():
        assert set(torch.zeros(1000).bernoulli_(0.15).tolist()) == {0.0, 1.0}
        assert F.dropout(torch.ones(9), 0.1).tolist() == pytest.approx([1.0] * 9)


def test_the_padding_row_is_not_shaken() -> None:
    subject = Subject(doctor.CausalLM(build=lambda: Small(pad=0), forward=plain, pad=0))
    assert not subject.model().embedding.weight[0].any()  # type: ignore[union-attr, index]
    assert subject.model().embedding.weight[1].any()  # type: ignore[union-attr, index]


def test_randomness_in_evaluation_hides_nothing_that_dropout_alone_would() -> None:
    def forward(model: nn.Module, tokens: Tensor) -> Tensor:
        return model(tokens.roll(-1, dims=1)) + F.dropout(torch.ones(61), 0.1)

    found = ids(doctor.check(doctor.CausalLM(build=Small, forward=forward), only=["mode", "future"]))
    assert found == {"mode.random": "error", "future.visible": "error"}
