"""The log-probabilities a model gives to text that is already there: one pass, nothing searched.

The same numbers that a search adds up, so that translating and scoring the translation agree. For long texts a
language model reads in windows that overlap; each token is predicted once, with at least half a window before it.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from clearhead.model import DecoderOnly, EncoderDecoder

BATCH_TOKENS = 2048  # padded tokens in a pass


def batches(lengths: Sequence[int], most_rows: int = 64, most_tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices in batches of similar lengths, longest first, so that little is padding and memory runs out early."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) >= most_rows or (len(batch) + 1) * lengths[batch[0]] > most_tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def right_pad(rows: Sequence[Sequence[int]], device: torch.device | None = None) -> tuple[Tensor, Tensor | None]:
    """Rows of different lengths as (B, T), and where the real tokens are; None if there is no padding."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.long, device=device)
    if all(len(row) == longest for row in rows):
        return tokens, None
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(longest, device=device) < lengths[:, None]


def picked(model: EncoderDecoder | DecoderOnly, hidden: Tensor, labels: Tensor) -> Tensor:
    """Log-probabilities of `labels` (B, S), a few positions at a time: all logits at once would be large."""
    pieces = []
    for states, wanted in zip(hidden.flatten(0, 1).split(256), labels.flatten().split(256), strict=True):
        logits = model.head(states[None])[0].float() if hidden.dtype.itemsize < 4 else model.head(states[None])[0]
        pieces.append(logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(-1))
    return torch.cat(pieces).view(labels.shape)


@torch.inference_mode()
def score_pairs(
    model: EncoderDecoder, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """For targets with both marks (<s> … </s>): the log-probability of every token after the first."""
    device = model.embedding.weight.device
    result: list[list[float]] = [[] for _ in targets]
    for rows in batches([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]):
        source, source_real = right_pad([sources[i] for i in rows], device)
        target, _ = right_pad([targets[i] for i in rows], device)
        hidden = model.hidden(source, target[:, :-1], source_real)
        found = picked(model, hidden, target[:, 1:]).tolist()
        for row, index in enumerate(rows):
            result[index] = found[row][: len(targets[index]) - 1]
    return result


@torch.inference_mode()
def score_texts(model: DecoderOnly, texts: Sequence[Sequence[int]], context: int) -> list[list[float]]:
    """For each text the log-probability of every token after the first, seeing up to `context` tokens before it."""
    device = model.embedding.weight.device
    result = [[0.0] * (len(text) - 1) for text in texts]
    pieces = [(i, *window) for i, text in enumerate(texts) for window in windows(len(text), context)]
    for rows in batches([end - start for _, start, _, end in pieces]):
        chosen = [pieces[row] for row in rows]
        tokens, _ = right_pad([texts[i][start:end] for i, start, _, end in chosen], device)
        found = picked(model, model.hidden(tokens[:, :-1]), tokens[:, 1:]).tolist()
        for row, (i, start, first, end) in enumerate(chosen):
            result[i][first - 1 : end - 1] = found[row][first - start - 1 : end - start - 1]
    return result


def windows(length: int, context: int) -> Iterator[tuple[int, int, int]]:
    """(start, first, end): read tokens start … end − 1 and count those from `first` on; none is counted twice."""
    start, first = 0, 1
    while first < length:
        end = min(start + context + 1, length)  # the last one is predicted but not read
        yield start, first, end
        start, first = end - 1 - context // 2, end
