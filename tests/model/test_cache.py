"""The KV cache: what it keeps, how it grows, what it costs. That it equals the full pass is in test_properties.py."""

import pytest
import torch

import clearhead
from clearhead.model.cache import AttentionCache
from tests.model.cases import POSITIONS
from tests.model.helpers import close, config, lengths_to_real, model, normal, tokens


def test_keeps_what_it_was_given_while_it_grows() -> None:
    layer, k, v = AttentionCache(capacity=2), normal(2, 3, 20, 4), normal(2, 3, 20, 4, seed=1)
    at = 0
    for size in (1, 1, 1, 3, 9, 5):
        keys, values = layer.append(k[:, :, at : at + size], v[:, :, at : at + size])
        at += size
        assert torch.equal(keys, k[:, :, :at])
        assert torch.equal(values, v[:, :, :at])


def test_room_grows_in_few_leaps_and_never_to_more_than_double() -> None:
    """A copy of everything at each step would cost the square of the length."""
    layer, one, rooms = AttentionCache(capacity=2), normal(1, 1, 1, 4), []
    for length in range(1, 1001):
        layer.append(one, one)
        assert length <= layer.capacity <= 2 * length
        rooms.append(layer.bytes())
    assert len(set(rooms)) <= 10
    layer.append(normal(1, 1, 5000, 4), normal(1, 1, 5000, 4))  # one chunk may ask for more than double
    assert layer.capacity >= 6000


def test_reports_its_bytes() -> None:
    choice = config("encoder-decoder", kv_heads=2)  # width of a head 6, two layers
    translator, cache = model("encoder-decoder", kv_heads=2).float(), clearhead.KVCache(choice, 3, capacity=10)
    assert cache.bytes() == 0
    with torch.no_grad():
        memory = translator.encode(tokens(3, 7))
        for length in range(1, 13):
            translator.decode(tokens(3, 1), memory, cache=cache)
            room = 10 if length <= 10 else 20
            # layers × (keys, values) × rows × groups × width × float32
            assert cache.bytes() == 2 * 2 * 3 * 2 * 6 * 4 * (room + 7)
    assert cache.length == 12
    assert cache.lengths.tolist() == [12, 12, 12]


def test_the_memory_is_read_at_the_first_step_only() -> None:
    """Its keys and values are projected once: what the memory holds afterwards changes nothing."""
    translator, new = model("encoder-decoder", decoder_layers=3), tokens(2, 6)
    cache = clearhead.KVCache(translator.config, 2)
    with torch.no_grad():
        memory = translator.encode(tokens(2, 9))
        wanted = translator.decode(new, memory)
        found = [translator.decode(new[:, :1], memory, cache=cache)]
        memory = torch.full_like(memory, torch.nan)
        found += [translator.decode(new[:, i : i + 1], memory, cache=cache) for i in range(1, 6)]
    close(torch.cat(found, 1), wanted)


@pytest.mark.parametrize("positions", POSITIONS)
def test_rows_of_unequal_length(positions: str) -> None:
    """Two prompts padded on the left, then rows swapped: lengths, positions and masks follow their rows."""
    decoder = model(positions=positions)
    prompts, real = tokens(2, 5), lengths_to_real([5, 2], 5, "left")
    cache, new = clearhead.KVCache(decoder.config, 2), tokens(3, 2, seed=1)
    with torch.no_grad():
        decoder(prompts, real, cache=cache)
        assert cache.lengths.tolist() == [5, 2]
        cache.reorder(torch.tensor([1, 0, 1]))
        assert cache.batch == 3
        assert cache.lengths.tolist() == [2, 5, 2]
        found = decoder(new, cache=cache)
        assert cache.lengths.tolist() == [4, 7, 4]
        for row, prompt in enumerate((prompts[1, 3:], prompts[0], prompts[1, 3:])):
            whole = torch.cat((prompt, new[row]))[None]
            close(found[row], decoder(whole)[0, -2:])


def test_reordered_cache_keeps_growing_apart() -> None:
    """Two copies of one row must not share memory."""
    decoder, cache = model(), clearhead.KVCache(config(), 1)
    with torch.no_grad():
        decoder(tokens(1, 3), cache=cache)
        cache.reorder(torch.tensor([0, 0]))
        found = decoder(torch.tensor([[4], [5]]), cache=cache)
        for row, token in enumerate((4, 5)):
            close(found[row, 0], decoder(torch.cat((tokens(1, 3), torch.tensor([[token]])), 1))[0, -1])


def test_refusals() -> None:
    decoder = model()
    with pytest.raises(clearhead.InputError, match=r"inference: decode inside torch.no_grad\(\)"):
        decoder(tokens(2, 3), cache=clearhead.KVCache(decoder.config, 2))
    with torch.no_grad():
        with pytest.raises(clearhead.InputError, match="the cache holds 4 rows, but the tokens have 2"):
            decoder(tokens(2, 3), cache=clearhead.KVCache(decoder.config, 4))
        with pytest.raises(clearhead.InputError, match="a cache holds one document a row"):
            decoder(tokens(2, 3), documents=tokens(2, 3), cache=clearhead.KVCache(decoder.config, 2))


def test_a_refused_pass_leaves_the_cache_as_it_was() -> None:
    decoder, cache = model(positions={"kind": "learned", "max_length": 6}), clearhead.KVCache(config(), 2)
    ids, real = tokens(2, 4), lengths_to_real([4, 3], 4, "left")
    with torch.no_grad():
        decoder(ids, real, cache=cache)
        with pytest.raises(clearhead.InputError):
            decoder(tokens(2, 3), cache=cache)  # past the table
        with pytest.raises(clearhead.InputError):
            decoder(torch.tensor([[99], [1]]), cache=cache)  # no such token
        found = decoder(tokens(2, 2, seed=1), cache=cache)
        assert cache.lengths.tolist() == [6, 5]
        whole = decoder(torch.cat((ids[:1], tokens(2, 2, seed=1)[:1]), 1))
        close(found[0], whole[0, -2:])
