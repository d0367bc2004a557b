"""Embeddings: √D, what is added to them, and the matrix they share with the head."""

import math

import pytest
import torch

import clearhead
from clearhead.model.attention_inputs import AttentionInputs
from clearhead.model.norm import layer_norm
from clearhead.model.positions import sinusoids
from tests.model.helpers import close, config, model, normal, tokens


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("layout", ["interleaved", "split"])
def test_token_times_root_d_plus_position(scaled: bool, layout: str) -> None:
    built = model(embedding={"scaled": scaled}, positions={"layout": layout})
    ids, at = tokens(2, 7), torch.tensor([[0, 1, 2, 3, 4, 5, 6], [3, 0, 2, 90, 1, 1, 1]])
    found = built.embedding(ids, AttentionInputs(positions=at, longest=91))
    scale = math.sqrt(24) if scaled else 1
    close(found, built.embedding.weight[ids] * scale + sinusoids(91, 24, layout=layout)[at])


def test_segments_and_norm_come_before_dropout() -> None:
    """BERT's order: token + position + segment, then the norm."""
    choice = {"segments": 3, "norm": True, "scaled": False}
    built = model("encoder", embedding=choice, positions={"kind": "learned", "max_length": 9})
    ids, segments, part = tokens(2, 5), tokens(2, 5, seed=1, vocabulary=3), built.embedding
    summed = part.weight[ids] + part.positions.weight[:5] + part.segments[segments]
    wanted = layer_norm(summed, part.norm.weight, part.norm.bias, 1e-5)
    close(part(ids, AttentionInputs(positions=torch.arange(5)[None], longest=5), segments), wanted)


def test_tied_matrix_learns_from_both_ends() -> None:
    built, ids = model(), tokens(1, 6, vocabulary=10)
    built(ids)[:, :, 20].sum().backward()
    gradient = built.embedding.weight.grad
    touched = {*ids.flatten().tolist(), 20}  # read at the bottom, written at the top
    assert set(gradient.abs().sum(-1).nonzero().flatten().tolist()) == touched


@pytest.mark.parametrize("tied", [True, False])
def test_matrix_of_the_head(tied: bool) -> None:
    built = model(head={"tied": tied, "bias": True})
    hidden, matrix = normal(2, 3, 24), built.embedding.weight if tied else built.output.weight
    close(built.head(hidden), hidden @ matrix.t() + built.output.bias)


def test_small_integers_will_do() -> None:
    built = model()
    assert torch.equal(built(tokens(2, 5).int()), built(tokens(2, 5)))


@pytest.mark.parametrize(("scaled", "deviation"), [(True, 512**-0.5), (False, 0.02)])
def test_starts_at_the_size_of_the_positions(scaled: bool, deviation: float) -> None:
    """Scaled, a token's features have size one, as its sinusoids have, and as tied head give logits of size one."""
    torch.manual_seed(0)
    built = clearhead.build(config(d_model=512, vocab_size=200, embedding={"scaled": scaled}))
    assert built.embedding.weight.std().item() == pytest.approx(deviation, rel=0.02)
