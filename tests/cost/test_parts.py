"""Whoever watches is told the right part, forward and backward."""

import torch

from clearhead.cost.parts import Part, part_of, watch
from clearhead.model import build, configure


def test_a_module_s_path_names_its_part() -> None:
    assert part_of("decoder.layers.3.cross_attention.query") == Part("decoder", "cross-attention", "query")
    assert part_of("encoder.layers.0.self_attention") == Part("encoder", "self-attention", "mixing")
    assert part_of("encoder.layers.0.self_attention_residual") == Part("encoder", "residuals")
    assert part_of("encoder.layers.0.self_attention_residual.norm") == Part("encoder", "norms")
    assert part_of("decoder.layers.11.feed_forward") == Part("decoder", "feed-forward", "activation")
    assert part_of("decoder.layers.11.feed_forward.gate") == Part("decoder", "feed-forward", "gate")
    assert part_of("decoder.attention_inputs.relative") == Part("decoder", "positions")
    assert part_of("embedding.positions") == Part("", "positions")
    assert part_of("embedding") == Part("", "embedding")
    assert part_of("embedding.norm") == part_of("output.norm") == Part("", "norms")
    assert part_of("output") == part_of("output.classify") == part_of("") == Part("", "head")


def test_parts_take_turns_as_the_model_reads_and_backwards_in_reverse() -> None:
    model = build(configure(vocab_size=7, kind="decoder", d_model=8, heads=2, d_ff=16, decoder_layers=1))
    seen: list[str] = []

    def switch(part: Part | None) -> None:
        name = part.name or part.group if part is not None else ""
        if name and (not seen or seen[-1] != name):
            seen.append(name)

    with watch(model, switch):
        output = model(torch.arange(5)[None])
        forward = seen.copy()
        seen.clear()
        output.backward(torch.ones_like(output))
    assert forward == [
        *("head", "positions", "head", "embedding", "positions", "embedding", "head", "residuals"),
        *("mixing", "query", "mixing", "key", "mixing", "value", "mixing", "out", "mixing"),
        *("residuals", "norms", "residuals"),
        *("activation", "inner", "activation", "outer", "activation"),
        *("residuals", "norms", "residuals", "head"),
    ]
    # the projections of q, k and v may come in any order: they do not wait for each other
    assert seen[:9] == ["head", "norms", "residuals", "outer", "activation", "inner", "norms", "residuals", "out"]
    assert set(seen[9:-1]) == {"mixing", "query", "key", "value"}
    assert seen[-1] == "embedding"


def test_nothing_of_the_watching_stays_behind() -> None:
    model = build(configure(vocab_size=7, kind="decoder", d_model=8, heads=2, d_ff=16, decoder_layers=1))
    with watch(model, lambda part: None):
        model(torch.arange(5)[None])
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
