"""Masks: who sees whom, by the words of their definitions."""

import itertools

import torch

from clearhead.model.masks import causal_mask, combine, document_mask, padding_mask, window_mask


def test_causal_mask() -> None:
    for queries, keys in itertools.product((1, 2, 5), (1, 2, 5, 9)):
        mask = causal_mask(queries, keys)
        assert mask.dtype == torch.bool
        for i, j in itertools.product(range(queries), range(keys)):
            # the last query stands at the last key
            assert bool(mask[i, j]) == (j <= i + keys - queries)


def test_window_mask() -> None:
    queries, keys = torch.tensor([[3, 4], [0, 9]]), torch.tensor([[0, 2, 3, 4, 5, 7], [0, 1, 2, 8, 9, 12]])
    mask = window_mask(queries, keys, 3)
    assert mask.shape == (2, 1, 2, 6)
    for b, i, j in itertools.product(range(2), range(2), range(6)):
        assert bool(mask[b, 0, i, j]) == (abs(int(queries[b, i]) - int(keys[b, j])) < 3)


def test_document_and_padding_masks() -> None:
    numbers = torch.tensor([[1, 1, 2], [3, 4, 3]])
    mask = document_mask(numbers, numbers)
    assert mask.shape == (2, 1, 3, 3)
    assert mask[1, 0].tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    real = torch.tensor([[True, False], [True, True]])
    hidden = padding_mask(real, torch.zeros(2, 2))
    assert hidden.shape == (2, 1, 1, 2)
    assert hidden[:, 0, 0].tolist() == real.tolist()


def test_combine_allows_what_all_allow() -> None:
    causal, real = causal_mask(3, 3), torch.tensor([[True, True, False], [False, True, True]])
    assert combine(None, causal) is causal
    both = combine(causal, real[:, None, None])
    assert both.shape == (2, 1, 3, 3)
    for b, i, j in itertools.product(range(2), range(3), range(3)):
        assert bool(both[b, 0, i, j]) == (bool(causal[i, j]) and bool(real[b, j]))
