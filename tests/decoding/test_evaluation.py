"""Scores against the libraries that define them, and language-model scores that no batching can change."""

import math
from itertools import pairwise

import pytest
import sacrebleu
import torch

from clearhead.decoding.evaluation import answers, compare, corpus_scores, text_scores
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import batches, score_texts, windows
from clearhead.errors import InputError
from clearhead.tokenizer.characters_and_integers import Characters
from tests.decoding.models import byte_tokenizer, opinionated

REFERENCES = ["the cat sat on the mat .", "a dog ran over the green hill .", "two men are talking ."] * 10
OUTPUTS = ["the cat sat on a mat .", "a dog ran over the hill .", "two men talk ."] * 10
WORSE = ["cat mat .", "dog hill green .", "men ."] * 10


def test_scores_are_sacrebleus() -> None:
    found = corpus_scores(OUTPUTS, REFERENCES)
    assert found["BLEU"]["score"] == pytest.approx(sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score)
    assert found["chrF"]["score"] == pytest.approx(sacrebleu.corpus_chrf(OUTPUTS, [REFERENCES]).score)
    assert found["TER"]["score"] == pytest.approx(sacrebleu.corpus_ter(OUTPUTS, [REFERENCES]).score)
    assert "tok:13a" in found["BLEU"]["signature"]
    with pytest.raises(InputError, match="3 outputs and 30 references"):
        corpus_scores(OUTPUTS[:3], REFERENCES)


def test_significance() -> None:
    better = compare(OUTPUTS, WORSE, REFERENCES, resamples=200)
    assert better["BLEU"]["score"] > better["BLEU"]["baseline"]
    assert better["chrF"]["p"] < 0.05
    assert "bs:200" in better["BLEU"]["signature"]
    same = compare(OUTPUTS, OUTPUTS, REFERENCES, resamples=200)
    assert same["BLEU"]["p"] > 0.05


def test_answers() -> None:
    found = answers([[1, 2, 3], [1, 2], [5]], [[1, 2, 3], [1, 3], [5, 6]])
    assert found["exact"] == pytest.approx(1 / 3)
    assert found["accuracy"] == pytest.approx((3 + 1 + 1) / (3 + 2 + 2))


def test_every_token_is_counted_once_with_enough_before_it() -> None:
    for length in (1, 2, 3, 16, 17, 18, 100, 257):
        for context in (1, 2, 7, 16):
            counted = []
            for start, first, end in windows(length, context):
                assert end - 1 - start <= context
                counted += [(token, token - start) for token in range(first, end)]
            assert [token for token, _ in counted] == list(range(1, length))
            assert all(seen >= min(token, max(1, context // 2)) for token, seen in counted)


def test_batches_hold_everything_once() -> None:
    lengths = [5, 100, 3, 3, 99, 2, 50, 1]
    found = list(batches(lengths, most_rows=3, most_tokens=120))
    assert sorted(i for rows in found for i in rows) == list(range(8))
    for rows in found:
        assert len(rows) <= 3
        assert len(rows) == 1 or len(rows) * max(lengths[i] for i in rows) <= 120
    assert all(lengths[left[-1]] >= lengths[right[0]] for left, right in pairwise(found))


def test_text_scores_do_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = opinionated(0, "llama", vocab_size=275, kv_heads=1)
    loaded = LoadedModel(model, byte_tokenizer(), documents="blank-line")
    texts = ["the cat sat on the mat", "日本 and the dog", "a", "the cat " * 40]
    found = text_scores(loaded, texts, context=32)
    monkeypatch.setattr("clearhead.decoding.scoring.BATCH_TOKENS", 40)
    monkeypatch.setattr("clearhead.decoding.scoring.batches", lambda lengths: ([i] for i in range(len(lengths))))
    assert text_scores(loaded, texts, context=32) == pytest.approx(found, abs=1e-9)
    assert found["bytes"] == sum(len(text.encode()) for text in texts)
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["bits_per_byte"] == pytest.approx(found["loss"] * found["tokens"] / math.log(2) / found["bytes"])
    ids = [loaded.document(text) for text in texts]
    whole = 0.0
    for row in ids[:3]:  # shorter than the window: one plain pass says the same
        with torch.inference_mode():
            log_probs = model(torch.tensor([row[:-1]])).log_softmax(-1)[0]
        whole += float(log_probs.gather(1, torch.tensor(row[1:])[:, None]).sum())
    assert sum(map(sum, score_texts(model, ids[:3], 32))) == pytest.approx(whole, abs=1e-9)


@pytest.mark.parametrize("documents", ["line", "none"])
def test_bits_per_byte_count_the_bytes_of_the_text_whatever_its_tokens(documents: str) -> None:
    """Also those that the vocabulary does not know, and all but those of a first token that nothing predicts."""
    tokenizer = Characters("abc ")
    model = opinionated(0, "llama", vocab_size=tokenizer.size, kv_heads=1)
    loaded = LoadedModel(model, tokenizer, documents=documents)
    for text, first in (("abc 日本 cab", 1), ("日本 abc", 3)):
        found = text_scores(loaded, [text], context=32)
        assert found["bytes"] == len(text.encode()) - (first if documents == "none" else 0)
        nats = -sum(score_texts(model, [loaded.document(text)], 32)[0])
        assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / found["bytes"])
    merged = LoadedModel(opinionated(0, "llama", vocab_size=275, kv_heads=1), byte_tokenizer(), documents=documents)
    text = "the cat 日本"
    first = len(merged.tokenizer.token_bytes(merged.tokenizer.encode_ordinary(text)[0])) if documents == "none" else 0
    assert text_scores(merged, [text], context=32)["bytes"] == len(text.encode()) - first
