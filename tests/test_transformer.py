"""The Transformer in one file: its weights are those of `clearhead.model`, its numbers too, and it learns."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from clearhead import transformer
from clearhead.model import EncoderDecoder, configure
from clearhead.training.loss import cross_entropy
from clearhead.training.schedule import noam as scheduled
from clearhead.training.schedule import noam_peak
from clearhead.transformer import BOS, EOS, PAD, Transformer, greedy, loss, noam, shift, step, train

V, D, H, F, LAYERS = 13, 12, 3, 10, 2


def both(dropout: float = 0.0) -> tuple[Transformer, EncoderDecoder]:
    """The one file's model with random parameters, biases and gains too, and the package's with the same."""
    torch.manual_seed(0)
    mine = Transformer(V, D, H, F, LAYERS, dropout).double()
    for parameter in mine.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    sizes = {"d_model": D, "heads": H, "d_ff": F, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
    theirs = EncoderDecoder(configure(vocab_size=V, **sizes, dropout=dropout, kernels="plain")).double()
    theirs.load_state_dict(mine.state_dict(), strict=True)
    return mine, theirs


def tokens(*shape: int) -> Tensor:
    return torch.randint(3, V, shape)


@pytest.mark.parametrize("padded", [False, True])
def test_the_one_file_and_the_package_are_the_same_model(padded: bool) -> None:
    mine, theirs = both()
    source, target = tokens(2, 7), tokens(2, 5)
    real = torch.ones(2, 7, dtype=torch.bool)
    real[1, 4:] = not padded
    ours, reference = (model(source, target, real) for model in (mine, theirs))
    torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-9)
    direction = torch.randn_like(ours)
    (ours * direction).sum().backward()
    (reference * direction).sum().backward()
    gradients = dict(theirs.named_parameters())
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-9, atol=1e-9, msg=name)


def test_the_loss_and_the_schedule_are_the_package_s() -> None:
    torch.manual_seed(0)
    logits, (_, labels) = torch.randn(2, 4, V), shift(tokens(2, 5))
    labels[1, 2:] = PAD
    counted = labels != PAD
    wanted = cross_entropy(logits[counted], labels[counted], 0.1) / counted.sum()
    torch.testing.assert_close(loss(logits, labels, PAD, 0.1), wanted)
    for n in (1, 9, 10, 11, 400):
        assert noam(n, 64, 10) == pytest.approx(scheduled(n, 10, noam_peak(1.0, 64, 10)))


def test_a_step_with_the_cache_is_the_last_position_of_the_whole() -> None:
    mine, _ = both()
    for _ in range(2):  # the second request has a cache of its own
        source, target = tokens(2, 7), tokens(2, 6)
        real = source != source[0, 3]
        memory = mine.encode(source, real)
        whole, cache = mine.decode(target, memory, real), dict[object, object]()
        steps = [step(mine, target[:, i : i + 1], memory, real, cache) for i in range(6)]
        torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-9, atol=1e-9)


def copying(batch: int, longest: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Lists of 1 to `longest` of ten symbols, and the same as targets."""
    random = torch.Generator().manual_seed(seed)
    column = torch.arange(longest)
    while True:
        lengths = torch.randint(1, longest + 1, (batch,), generator=random)
        source = torch.randint(3, V, (batch, longest), generator=random)
        source[column >= lengths[:, None]] = PAD
        target = torch.cat((torch.full((batch, 1), BOS), source, torch.full((batch, 1), PAD)), 1)
        target[torch.arange(batch), lengths + 1] = EOS
        yield source, target


def test_one_batch_is_learned_by_heart() -> None:
    torch.manual_seed(0)
    model = Transformer(V, 16, 2, 32, 1, dropout=0.0)
    batch = next(copying(4, 4, seed=1))
    losses = train(model, iter([batch] * 150), 150, warmup=400)
    assert len(losses) == 150
    assert not model.training
    assert losses[0] == pytest.approx(2.6, abs=1.5)  # ln 13, and logits of size one
    assert greedy(model, batch[0], batch[0] != PAD, BOS, EOS, 6) == [
        [token for token in row if token != PAD] for row in batch[0].tolist()
    ]


@pytest.mark.long
def test_it_learns_to_copy_within_a_thousand_steps() -> None:
    torch.manual_seed(0)
    model = Transformer(V, 32, 4, 64, 2, dropout=0.0)
    train(model, copying(32, 8, seed=0), 1000, warmup=400)
    source, _ = next(copying(200, 8, seed=1))
    written = greedy(model, source, source != PAD, BOS, EOS, 10)
    wanted = [[token for token in row if token != PAD] for row in source.tolist()]
    assert sum(a == b for a, b in zip(written, wanted, strict=True)) >= 190


def test_it_needs_nothing_but_torch() -> None:
    roots = set()
    for node in ast.walk(ast.parse(Path(transformer.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add(str(node.module).split(".")[0])
    assert roots == {"torch", "math", "collections", "functools", "itertools", "typing"}
