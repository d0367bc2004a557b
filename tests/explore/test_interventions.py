"""Edited passes equal the same intervention made by hand, with hooks, on the GPT-2 of `transformers`."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.explore.interventions import (
    SWITCHES,
    Place,
    combine,
    even,
    find_head,
    places,
    silence,
    swap_in,
    switched,
    without_layer,
)
from clearhead.model import configure
from clearhead.model.trace import Edit
from tests.interop.test_transformers import B, S, ours_of, padded, theirs_of
from tests.model.helpers import close, model, tokens

HEADS, WIDTH = 5, 20
d = WIDTH // HEADS
FIRST = Place("decoder", 0, "self")
Hooks = Callable[[Any], list[Any]]  # puts hooks onto a model of theirs


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    theirs = theirs_of("GPT2LMHeadModel", "GPT2")
    return theirs, ours_of(theirs)


def on_blocks(part: str, hook: Callable[..., Any], layers: tuple[int, ...] = (0, 1), pre: bool = False) -> Hooks:
    """The same hook on one part of several blocks: "attn.c_proj"."""

    def put(theirs: Any) -> list[Any]:
        modules = [theirs.transformer.h[layer].get_submodule(part) for layer in layers]
        return [m.register_forward_pre_hook(hook) if pre else m.register_forward_hook(hook) for m in modules]

    return put


def zero_heads(*silent: int, layers: tuple[int, ...] = (0, 1)) -> Hooks:
    """The merged heads go into c_proj: some columns of what it gets become zero."""

    def hook(module: Any, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = given[0].clone()
        for head in silent:
            x[..., head * d : (head + 1) * d] = 0
        return (x, *given[1:])

    return on_blocks("attn.c_proj", hook, layers, pre=True)


def attended(weigh: Callable[[Tensor], Tensor], heads: tuple[int, ...], layers: tuple[int, ...] = (0, 1)) -> Hooks:
    """What goes into c_proj, made anew from q, k and v by `weigh`: scores (B, H, S, S) -> weights."""

    def put(theirs: Any) -> list[Any]:
        handles = []
        for layer in layers:
            kept: list[Tensor] = []

            def keep(module: Any, given: Any, out: Tensor, kept: list[Tensor] = kept) -> None:
                kept[:] = [x.unflatten(-1, (HEADS, d)).transpose(1, 2) for x in out.split(WIDTH, dim=-1)]

            def mix(module: Any, given: tuple[Tensor, ...], kept: list[Tensor] = kept) -> tuple[Tensor, ...]:
                q, k, v = kept
                context = weigh(q @ k.transpose(-2, -1) / math.sqrt(d)) @ v
                x = given[0].clone()
                for head in heads:
                    x[..., head * d : (head + 1) * d] = context[:, head]
                return (x, *given[1:])

            attn = theirs.transformer.h[layer].attn
            handles += [attn.c_attn.register_forward_hook(keep), attn.c_proj.register_forward_pre_hook(mix)]
        return handles

    return put


def zeros(module: Any, given: Any, out: Any) -> Any:
    return (torch.zeros_like(out[0]), *out[1:]) if isinstance(out, tuple) else torch.zeros_like(out)


def triangle(x: Tensor) -> Tensor:
    return torch.ones(x.shape[-2:], dtype=torch.bool).tril()


def causal_softmax(scores: Tensor) -> Tensor:
    return scores.masked_fill(~triangle(scores), -math.inf).softmax(-1)


def averages(scores: Tensor) -> Tensor:
    seen = triangle(scores).to(scores.dtype)
    return (seen / seen.sum(-1, keepdim=True)).expand_as(scores)


def no_positions(theirs: Any) -> list[Any]:
    return [theirs.transformer.wpe.register_forward_hook(zeros)]


def both(*hooks: Hooks) -> Hooks:
    return lambda theirs: [handle for one in hooks for handle in one(theirs)]


def given_back(module: Any, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
    return given[0]


EVERY = tuple(range(HEADS))
CASES: dict[str, tuple[Callable[[Any], Edit], Hooks]] = {
    "a head silenced": (lambda c: silence(FIRST, 3), zero_heads(3, layers=(0,))),
    "two heads silenced": (
        lambda c: combine(silence(FIRST, 3), silence(FIRST, 0), silence(Place("decoder", 1, "self"), 1)),
        both(zero_heads(3, 0, layers=(0,)), zero_heads(1, layers=(1,))),
    ),
    "a head made even": (lambda c: even(FIRST, 2), attended(averages, (2,), (0,))),
    "a layer left out": (
        lambda c: without_layer(c, "decoder", 1),
        both(on_blocks("attn", zeros, (1,)), on_blocks("mlp", zeros, (1,))),
    ),
    "scale": (
        lambda c: switched(c, ["scale"]),
        attended(lambda scores: causal_softmax(scores * math.sqrt(d)), EVERY),
    ),
    "mask": (lambda c: switched(c, ["mask"]), attended(lambda scores: scores.softmax(-1), EVERY)),
    "late": (
        lambda c: switched(c, ["late"]),
        attended(lambda scores: scores.softmax(-1) * triangle(scores), EVERY),
    ),
    "positions": (lambda c: switched(c, ["positions"]), no_positions),
    "onehead": (lambda c: switched(c, ["onehead"]), zero_heads(1, 2, 3, 4)),
    "norm": (
        lambda c: switched(c, ["norm"]),
        both(on_blocks("ln_1", given_back), on_blocks("ln_2", given_back)),
    ),
    "ff": (lambda c: switched(c, ["ff"]), on_blocks("mlp", zeros)),
    "several at once": (
        lambda c: combine(switched(c, ["mask", "positions", "scale", "ff"]), silence(FIRST, 4)),
        both(
            attended(lambda scores: (scores * math.sqrt(d)).softmax(-1), EVERY),
            no_positions,
            on_blocks("mlp", zeros),
            zero_heads(4, layers=(0,)),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_edit_is_what_hooks_on_transformers_do(case: str, pair: tuple[Any, Any]) -> None:
    theirs, ours = pair
    ids, _ = padded("right")
    edit, hooks = CASES[case]
    with torch.no_grad(), ExitStack() as stack:
        plain = theirs(ids).logits
        for handle in hooks(theirs):
            stack.callback(handle.remove)
        wanted = theirs(ids).logits
        with clearhead.trace(ours, edit=edit(ours.config)):
            found = ours(ids)
    assert (wanted - plain).abs().max() > 1e-3  # the intervention does something
    close(found, wanted, 1e-9)
    with torch.no_grad():
        close(ours(ids), plain, 1e-9)  # and leaves nothing behind


def test_states_swapped_in_are_what_hooks_on_transformers_do(pair: tuple[Any, Any]) -> None:
    """Position 4 after the first block becomes what it was for another text."""
    theirs, ours = pair
    ids, other_ids = padded("right")[0], tokens(B, S, seed=9, vocabulary=29) + 2
    name = "decoder.layers.0.feed_forward_residual.residual"
    with torch.no_grad(), clearhead.trace(ours) as other:
        ours(other_ids)
    kept: list[Tensor] = []

    def keep(module: Any, given: Any, out: Any) -> None:
        kept[:] = [(out[0] if isinstance(out, tuple) else out).clone()]

    def put(module: Any, given: Any, out: Any) -> Any:
        state = (out[0] if isinstance(out, tuple) else out).clone()
        state[:, 4] = kept[0][:, 4]
        return (state, *out[1:]) if isinstance(out, tuple) else state

    def patch(state: Tensor) -> Tensor:
        state[:, 4] = other[name][:, 4]
        return state

    with torch.no_grad():
        handle = theirs.transformer.h[0].register_forward_hook(keep)
        theirs(other_ids)
        handle.remove()
        handle = theirs.transformer.h[0].register_forward_hook(put)
        wanted = theirs(ids).logits
        handle.remove()
        with clearhead.trace(ours, edit={name: patch}):
            close(ours(ids), wanted, 1e-9)
        with clearhead.trace(ours, edit=swap_in(other, name)):
            close(ours(ids), theirs(other_ids).logits, 1e-9)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rope", "alibi"])
def test_without_positions_a_model_sees_a_heap(kind: str) -> None:
    """An encoder without positions gives a shuffled text shuffled states, whatever kind of position it had."""
    built = model("encoder", positions=kind)
    ids = tokens(2, 7)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    with torch.no_grad():
        assert not torch.allclose(built(ids)[:, order], built(ids[:, order]))
        with clearhead.trace(built, edit=switched(built.config, ["positions"])):
            first, second = built(ids), built(ids[:, order])
    close(first[:, order], second)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_without_norms_the_stream_is_a_plain_sum(placement: str) -> None:
    built = model("encoder-decoder", norm={"placement": placement})
    with torch.no_grad(), clearhead.trace(built, edit=switched(built.config, ["norm"])) as seen:
        built(tokens(2, 5), tokens(2, 6, seed=1))
    for stack, embedded in (("encoder", "embedding.embedding"), ("decoder", "embedding.embedding#2")):
        parts = [name for name in seen if name.startswith(f"{stack}.layers") and name.endswith(".output")]
        last = f"{stack}.layers.{built.config.decoder_layers - 1}.feed_forward_residual.residual"
        close(seen[last], seen[embedded] + sum(seen[name] for name in parts))


def test_every_switch_is_known_and_changes_something() -> None:
    built = model("encoder-decoder")
    given = tokens(2, 5), tokens(2, 6, seed=1)
    with torch.no_grad():
        before = built(*given)
        for name in SWITCHES:
            with clearhead.trace(built, edit=switched(built.config, [name])):
                assert not torch.allclose(built(*given), before), name
    with pytest.raises(clearhead.InputError, match="no switch 'mask' for this model; it has scale, positions"):
        switched(model("encoder").config, ["mask"])


def test_heads_by_the_name_people_read() -> None:
    config = configure("tiny", decoder_layers=2, encoder_layers=1)
    assert [str(place) for place in places(config)] == [
        "encoder.1.self",
        "decoder.1.self",
        "decoder.1.cross",
        "decoder.2.self",
        "decoder.2.cross",
    ]
    assert find_head(config, "decoder.2.cross.3") == (Place("decoder", 1, "cross"), 2)
    for wrong in ("decoder.3.cross.1", "decoder.1.cross.5", "decoder.0.self.1", "encoder.1.cross.1", "", "a" * 500):
        with pytest.raises(clearhead.InputError, match="no head"):
            find_head(config, wrong)
