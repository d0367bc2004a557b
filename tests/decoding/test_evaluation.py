"""Scores against the libraries that define them, and language-model scores that no batching can change."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import sacrebleu
import torch

from clearhead.data.batch import IGNORE, Batch
from clearhead.decoding.evaluation import answers, compare, corpus_scores, label_scores, text_file_scores, text_scores
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
    assert found["tokens_in_place"] == pytest.approx((3 + 1 + 1) / (3 + 2 + 2))


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
    one = text_scores(loaded, ["a"], context=32)
    assert one["bytes"] == 1
    assert one["bits_per_byte"] == pytest.approx(one["loss"] * one["tokens"] / math.log(2))
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


@pytest.mark.parametrize("kind", ["tokens", "pooled"])
def test_labels_are_scored_as_by_hand(kind: str) -> None:
    """Rows of different lengths: where there is no label, nothing is right or wrong."""
    head = {"kind": kind, "classes": 5}
    model = opinionated(2, vocab_size=275, kind="encoder", head=head)
    rows, longest = [[7, 8, 9, 10], [11, 12], [13]], 4

    class Data:
        blocks = 1

        def plan(self, seed: int, epoch: int, max_tokens: int, block: int = 0) -> list[list[int]]:
            return [[2, 0], [1]]

        def collate(self, indices: list[int]) -> Batch:
            tokens = torch.tensor([rows[i] + [0] * (longest - len(rows[i])) for i in indices])
            real = torch.arange(longest) < torch.tensor([len(rows[i]) for i in indices])[:, None]
            labels = torch.tensor([[(7 * i + place) % 5 for place in range(longest)] for i in indices])
            labels = labels[:, 0] if kind == "pooled" else labels.masked_fill(~real, IGNORE)
            return Batch({"tokens": tokens, "real": real}, labels, int((labels != IGNORE).sum()))

    found = label_scores(LoadedModel(model, byte_tokenizer()), Data())  # type: ignore[arg-type]
    losses, right = [], []
    for i, row in enumerate(rows):
        with torch.inference_mode():
            log_probs = model(torch.tensor([row])).log_softmax(-1)[0]
        wanted = [7 * i % 5] if kind == "pooled" else [(7 * i + place) % 5 for place in range(len(row))]
        log_probs = log_probs.view(len(wanted), 5)
        losses += [-float(log_probs[place, label]) for place, label in enumerate(wanted)]
        right.append([int(log_probs[place].argmax()) == label for place, label in enumerate(wanted)])
    assert found["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-9)
    assert found["token_accuracy"] == pytest.approx(sum(map(sum, right)) / len(losses))
    assert found["exact"] == pytest.approx(sum(map(all, right)) / 3)
    assert found["examples"] == 3


def test_more_tokens_than_are_scored_at_once() -> None:
    model = opinionated(1, "llama", vocab_size=30, kv_heads=1)
    torch.manual_seed(0)
    text = torch.randint(0, 30, (601,)).tolist()
    with torch.inference_mode():
        log_probs = model(torch.tensor([text[:-1]])).log_softmax(-1)[0]
    wanted = log_probs.gather(1, torch.tensor(text[1:])[:, None])[:, 0].tolist()
    assert score_texts(model, [text], 1000)[0] == pytest.approx(wanted, abs=1e-9)


def test_the_first_token_of_a_stream_counts_neither_bits_nor_bytes() -> None:
    """In a stream nothing comes before the first token, so nothing predicts it: its bytes are left out, too."""
    model = opinionated(0, "llama", vocab_size=275, kv_heads=1)
    loaded = LoadedModel(model, byte_tokenizer(), documents="none")
    text = "the cat sat on the mat"
    ids = loaded.document(text)
    first = len(loaded.tokenizer.decode_bytes(ids[:1]))
    assert first > 1, "the first token was meant to be several bytes"
    with torch.inference_mode():
        log_probs = model(torch.tensor([ids[:-1]])).log_softmax(-1)[0]
    bits = -float(log_probs.gather(1, torch.tensor(ids[1:])[:, None]).sum()) / math.log(2)
    found = text_scores(loaded, [text], context=64)
    assert found["bytes"] == len(text.encode()) - first
    assert found["tokens"] == len(ids) - 1
    assert found["bits_per_byte"] == pytest.approx(bits / (len(text.encode()) - first), rel=1e-9)


def test_a_text_of_which_nothing_can_be_predicted_is_refused() -> None:
    loaded = LoadedModel(opinionated(0, "llama", vocab_size=275, kv_heads=1), byte_tokenizer(), documents="none")
    for documents in ([], [""], ["a"]):
        with pytest.raises(InputError, match="nothing to evaluate: the text has fewer than two tokens"):
            text_scores(loaded, documents, context=8)


@pytest.mark.parametrize("documents", ["line", "none"])
def test_documents_that_are_read_in_pieces_are_scored_whole(
    documents: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n" + "the dog sat on the cat " * 3 + "\nthe mat\n")
    loaded = LoadedModel(opinionated(0, "llama", vocab_size=275, kv_heads=1), byte_tokenizer(), documents=documents)
    whole = text_file_scores(loaded, tmp_path / "a.txt")
    monkeypatch.setattr("clearhead.tokenizer.corpus.BLOCK", 8)
    assert text_file_scores(loaded, tmp_path / "a.txt") == whole
