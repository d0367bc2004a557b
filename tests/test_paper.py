"""Statements of "Attention Is All You Need" that no test elsewhere holds by itself; docs/paper.md lists them all."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from clearhead.cost.account import Size, account, total
from clearhead.model import EncoderDecoder, ModelConfig, attention, trace
from clearhead.model.layer import TransformerLayer
from clearhead.model.norm import LayerNorm
from clearhead.model.residual import Residual
from clearhead.training.config import TrainingSettings

SMALL = ModelConfig(vocab_size=31, d_model=16, heads=4, d_ff=40, encoder_layers=2, decoder_layers=2)


def small_model() -> EncoderDecoder:
    torch.manual_seed(0)
    return EncoderDecoder(SMALL).double().eval()


def test_3_1_a_sub_layer_is_norm_of_x_plus_it() -> None:
    residual = Residual(SMALL).double().eval()
    norm = residual.norm
    assert isinstance(norm, LayerNorm)
    assert norm.bias is not None
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    wanted = F.layer_norm(x + x.sin(), (16,), norm.weight, norm.bias)
    torch.testing.assert_close(residual(x, torch.sin(residual.before(x))), wanted)


def test_3_2_1_scores_keep_the_variance_of_their_inputs() -> None:
    """Footnote 4: with components of variance 1, q·k has variance d_k; divided by √d_k it has 1."""
    torch.manual_seed(0)
    q, k = torch.randn(200, 1, 20, 512), torch.randn(200, 1, 20, 512)
    with trace() as taken:
        attention(q, k, k)
    scores = taken["scores"]
    assert scores.var().item() == pytest.approx(1, rel=0.02)
    assert (scores * math.sqrt(512)).var().item() == pytest.approx(512, rel=0.02)


def test_3_2_2_heads_cost_nothing() -> None:
    """ "Similar" in the paper is equal here: the same parameters and matrix products for any number of heads."""
    costs = {
        heads: total(account(replace(SMALL, heads=heads, kernels="plain"), Size(2, 6)).values()) for heads in (1, 4, 8)
    }
    assert len({(cost.parameters, cost.forward_flops, cost.backward_flops) for cost in costs.values()}) == 1


def test_3_2_3_who_looks_at_whom() -> None:
    """Encoder: all at all. Decoder: at itself and before. Cross: at the whole source, keys and values from its end."""
    model = small_model()
    source, target = torch.randint(31, (1, 5)), torch.randint(31, (1, 4))
    with trace(model) as taken:
        model(source, target)
    for number, layer in enumerate(model.decoder.layers):
        assert (taken[f"encoder.layers.{number}.self_attention.weights"] > 0).all()
        own = taken[f"decoder.layers.{number}.self_attention.weights"]
        assert torch.equal(own > 0, torch.ones(4, 4).tril().bool().expand(1, 4, 4, 4))
        assert (taken[f"decoder.layers.{number}.cross_attention.weights"] > 0).all()
        memory = taken["encoder.layers.1.feed_forward_residual.norm.norm"]  # the encoder's output
        assert isinstance(layer, TransformerLayer)
        cross = layer.cross_attention
        assert cross is not None
        for name, projection in (("k", cross.key), ("v", cross.value)):
            wanted = projection(memory).view(1, 5, 4, 4).transpose(1, 2)
            torch.testing.assert_close(taken[f"decoder.layers.{number}.cross_attention.{name}"], wanted)


def test_3_4_one_matrix_embeds_both_sides_and_makes_the_logits() -> None:
    model = small_model()
    source, target = torch.randint(31, (2, 5)), torch.randint(31, (2, 4))
    with trace(model) as taken:
        logits = model(source, target)
    matrix = model.embedding.weight
    assert [name for name, p in model.named_parameters() if 31 in p.shape] == ["embedding.weight"]
    for ids, again in ((source, ""), (target, "#2")):
        assert torch.equal(taken[f"embedding.tokens{again}"], matrix[ids])
        position = taken[f"embedding.positions{again}"]
        torch.testing.assert_close(taken[f"embedding.embedding{again}"], matrix[ids] * 4.0 + position)  # √16
    hidden = taken["decoder.layers.1.feed_forward_residual.norm.norm"]
    torch.testing.assert_close(logits, hidden @ matrix.T)


def test_5_3_the_defaults_of_training() -> None:
    settings = TrainingSettings()
    adam = (settings.optimizer, settings.beta1, settings.beta2, settings.epsilon)
    assert adam == ("adam", 0.9, 0.98, 1e-9)
    assert (settings.schedule, settings.warmup, settings.factor) == ("noam", 4000, None)
