"""Statements of "Attention Is All You Need" that no test elsewhere holds by itself; docs/paper.md lists them all."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from clearhead.cost.account import Size, account, total
from clearhead.model import ModelConfig, build, configure, trace
from clearhead.model.dropout import dropout, plain_dropout
from clearhead.model.feedforward import FeedForward
from clearhead.model.residual import Residual
from clearhead.training.config import TrainingSettings

SMALL = ModelConfig(vocab_size=31, d_model=16, heads=4, d_ff=40, encoder_layers=2, decoder_layers=2)


def small_model(**changes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    return build(replace(SMALL, **changes)).double()  # type: ignore[arg-type]


def test_table_3_base_and_big() -> None:
    base, big = configure("base"), configure("big")
    sizes = [
        (c.encoder_layers, c.decoder_layers, c.d_model, c.d_ff, c.heads, c.d_head, c.dropout.residual, c.vocab_size)
        for c in (base, big)
    ]
    assert sizes == [(6, 6, 512, 2048, 8, 64, 0.1, 37_000), (6, 6, 1024, 4096, 16, 64, 0.3, 37_000)]
    for config in (base, big):
        chosen = (config.activation, config.positions.kind, config.norm.kind, config.norm.placement, config.norm.final)
        assert chosen == ("relu", "sinusoidal", "layer", "post", False)
        assert config.groups == config.heads
        assert config.embedding.scaled
        assert config.head.tied
        assert config.dropout.attention == config.dropout.hidden == 0


def test_3_1_a_sub_layer_is_norm_of_x_plus_it() -> None:
    residual = Residual(SMALL).double().eval()
    torch.nn.init.normal_(residual.norm.weight)
    torch.nn.init.normal_(residual.norm.bias)
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    wanted = F.layer_norm(x + x.sin(), (16,), residual.norm.weight, residual.norm.bias)
    torch.testing.assert_close(residual(x, torch.sin), wanted)


def test_3_2_1_scores_keep_the_variance_of_their_inputs() -> None:
    """Footnote 4: with components of variance 1, q·k has variance d_k; divided by √d_k it has 1."""
    torch.manual_seed(0)
    q, k = torch.randn(200, 1, 20, 512), torch.randn(200, 1, 20, 512)
    model = build(configure(vocab_size=2, kind="encoder", head={"kind": "none"}, heads=1, encoder_layers=1))
    with trace(model) as taken:
        model.encoder.layers[0].self_attention.attend(q, k, k)
    scores = taken["scores"]
    assert scores.var().item() == pytest.approx(1, rel=0.02)
    assert (scores * math.sqrt(512)).var().item() == pytest.approx(512, rel=0.02)


def test_3_2_2_heads_cost_nothing() -> None:
    """"Similar" in the paper is equal here: the same parameters and matrix products for any number of heads."""
    costs = {
        heads: total(account(replace(SMALL, heads=heads, kernels="plain"), Size(2, 6)).values()) for heads in (1, 4, 8)
    }
    assert len({(cost.parameters, cost.forward_flops, cost.backward_flops) for cost in costs.values()}) == 1


def test_3_2_3_who_looks_at_whom() -> None:
    """Encoder: all at all. Decoder: at itself and before. Cross: at the whole source, keys and values from its end."""
    model = small_model().eval()
    source, target = torch.randint(31, (1, 5)), torch.randint(31, (1, 4))
    with trace(model) as taken:
        model(source, target)
    for layer in range(2):
        assert (taken[f"encoder.layers.{layer}.self_attention.weights"] > 0).all()
        own = taken[f"decoder.layers.{layer}.self_attention.weights"]
        assert torch.equal(own > 0, torch.ones(4, 4).tril().bool().expand(1, 4, 4, 4))
        assert (taken[f"decoder.layers.{layer}.cross_attention.weights"] > 0).all()
        memory = taken["encoder.layers.1.feed_forward_residual.norm.norm"]  # the encoder's output
        cross = model.decoder.layers[layer].cross_attention
        for name, projection in (("k", cross.key), ("v", cross.value)):
            wanted = projection(memory).view(1, 5, 4, 4).transpose(1, 2)
            torch.testing.assert_close(taken[f"decoder.layers.{layer}.cross_attention.{name}"], wanted)


def test_3_3_feed_forward_is_the_formula_at_each_position_alone() -> None:
    network = FeedForward(SMALL).double().eval()
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    w1, b1, w2, b2 = network.inner.weight.T, network.inner.bias, network.outer.weight.T, network.outer.bias
    wanted = torch.stack([torch.stack([(token @ w1 + b1).relu() @ w2 + b2 for token in row]) for row in x])
    torch.testing.assert_close(network(x), wanted)
    torch.testing.assert_close(network(x[:, :1]), wanted[:, :1])
    stacks = small_model()
    layers = [*stacks.encoder.layers, *stacks.decoder.layers]
    assert len({layer.feed_forward.inner.weight.data_ptr() for layer in layers}) == 4  # "different from layer to layer"


def test_3_4_one_matrix_embeds_both_sides_and_makes_the_logits() -> None:
    model = small_model().eval()
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


def test_5_4_dropout_on_each_sub_layer_s_output_before_it_is_added() -> None:
    rate = 0.25
    residual = Residual(replace(SMALL, dropout=replace(SMALL.dropout, residual=rate))).double().train()
    residual.norm = torch.nn.Identity()
    torch.manual_seed(0)
    x = torch.ones(50, 100, 16, dtype=torch.float64)
    added = residual(x, lambda x: 3 * x) - x  # x itself always passes
    kept = added != 0
    torch.testing.assert_close(added[kept], torch.full_like(added[kept], 3 / (1 - rate)))
    assert kept.double().mean().item() == pytest.approx(1 - rate, abs=0.01)


def test_5_4_dropout_on_the_sum_of_embeddings_and_positions() -> None:
    model = small_model(dropout=replace(SMALL.dropout, embedding=0.5)).train()
    ids = torch.randint(31, (40, 30))
    before = model.embedding.eval()(ids, torch.arange(30)[None], 30)
    after = model.embedding.train()(ids, torch.arange(30)[None], 30)
    kept = after != 0
    torch.testing.assert_close(after[kept], 2 * before[kept])
    assert kept.double().mean().item() == pytest.approx(0.5, abs=0.02)


def test_5_4_nothing_is_dropped_elsewhere_or_outside_of_training() -> None:
    """With both rates of section 5.4 at zero, a training pass is the same as any other."""
    model = small_model(dropout=replace(SMALL.dropout, residual=0.0, embedding=0.0))
    inputs = torch.randint(31, (2, 5)), torch.randint(31, (2, 4))
    assert torch.equal(model.train()(*inputs), model.eval()(*inputs))
    model = small_model().eval()
    assert torch.equal(model(*inputs), model(*inputs))


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_5_4_fast_dropout_has_the_rate_and_the_mean_of_the_plain_one(rate: float) -> None:
    """The deviation: rates are rounded to 1/65,536, and the scale follows, so that the mean is exact."""
    torch.manual_seed(0)
    ones = torch.ones(1_000_003)
    for dropped in (dropout(ones, rate, training=True), plain_dropout(ones, rate)):
        assert (dropped == 0).double().mean().item() == pytest.approx(rate, abs=0.002)
        assert dropped.double().mean().item() == pytest.approx(1, abs=0.002)
        assert len(dropped.unique()) == 2
    values = dropout(ones, rate, training=True).unique()
    kept = 1 - round(rate * 65_536) / 65_536
    assert values[1].item() == pytest.approx(1 / kept, rel=1e-6)
