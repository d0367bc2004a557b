"""Texts longer than the context are scored in windows that overlap: each token once, with as much before it as said."""

import pytest
import torch

from clearhead.decoding.scoring import batches, score_texts, windows
from tests.decoding.models import opinionated


@pytest.mark.parametrize("context", [1, 2, 5, 8])
def test_a_text_longer_than_the_context_is_scored_token_by_token(context: int) -> None:
    model = opinionated(0, kind="decoder")
    texts = [[1, *(3 + n * n % 16 for n in range(size))] for size in (23, 3, 0, 8)]
    found = score_texts(model, texts, context)
    assert [len(scores) for scores in found] == [len(text) - 1 for text in texts]
    for text, scores in zip(texts, found, strict=True):
        seen = {}
        for start, first, end in windows(len(text), context):
            assert end - 1 - start <= context
            for at in range(first, end):
                seen[at] = (model(torch.tensor([text[start:at]]))[0, -1].log_softmax(-1)[text[at]]).item()
        assert sorted(seen) == list(range(1, len(text)))
        assert scores == pytest.approx([seen[at] for at in sorted(seen)], abs=1e-9)


def test_windows_overlap_by_half_a_context() -> None:
    assert list(windows(12, 4)) == [(0, 1, 5), (2, 5, 7), (4, 7, 9), (6, 9, 11), (8, 11, 12)]


def test_batches_are_as_full_as_they_may_be() -> None:
    assert list(batches([2, 9, 4, 4], most_rows=2)) == [[1, 2], [3, 0]]
    assert list(batches([2, 9, 4, 4], most_tokens=12)) == [[1], [2, 3, 0]]
    assert list(batches([6, 6], most_tokens=12)) == [[0, 1]]
    assert list(batches([6, 6], most_tokens=11)) == [[0], [1]]
    assert list(batches([])) == []
