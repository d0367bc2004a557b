"""How good is it? The measures people compare by, from the libraries they compare with.

Translations: BLEU, chrF and TER by sacreBLEU, each with its signature, because a score without one cannot be compared;
whether one system is better than another is tested by paired bootstrap resampling (Koehn, 2004). Language models:
perplexity per token, which depends on the tokenizer, and bits per byte, which does not. Tasks with one right answer:
the share of answers that are right as a whole, and of tokens.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from clearhead.data.batch import IGNORE, Dataset
from clearhead.decoding.scoring import score_texts
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderOnly

if TYPE_CHECKING:
    from clearhead.decoding.load import LoadedModel


def corpus_scores(outputs: Sequence[str], references: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{"BLEU": {"score": …, "signature": …}, …} of a whole test set."""
    check_lengths(outputs, references)
    result = {}
    for name, metric in _metrics().items():
        score = metric.corpus_score(list(outputs), [list(references)]).score
        result[name] = {"score": score, "signature": str(metric.get_signature())}
    return result


def compare(
    outputs: Sequence[str], baseline: Sequence[str], references: Sequence[str], resamples: int = 1000
) -> dict[str, dict[str, Any]]:
    """Ours against a baseline on the same references: scores with 95 % intervals, and p by paired bootstrap."""
    from sacrebleu.significance import PairedTest

    check_lengths(outputs, references)
    check_lengths(baseline, references)
    metrics = _metrics([list(references)])
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("ours", list(outputs))]
    signatures, found = PairedTest(systems, metrics, references=None, test_type="bs", n_samples=resamples)()
    result = {}
    for name, key in zip(metrics, signatures, strict=True):  # theirs are named "chrF2" and the like
        theirs: Any = found[key][0]
        ours: Any = found[key][1]
        result[name] = {
            # some of theirs are NumPy's numbers, which JSON does not know
            "score": float(ours.score),
            "interval": float(ours.ci),
            "baseline": float(theirs.score),
            "baseline_interval": float(theirs.ci),
            # of two equal systems no resample differs, which the library's count takes for the rarest case
            "p": 1.0 if ours.score == theirs.score else float(ours.p_value),
            "signature": str(signatures[key]),
        }
    return result


def _metrics(references: list[list[str]] | None = None) -> dict[str, Any]:
    from sacrebleu.metrics import BLEU, CHRF, TER

    return {"BLEU": BLEU(references=references), "chrF": CHRF(references=references), "TER": TER(references=references)}


def check_lengths(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references):
        raise InputError(f"found {len(outputs):,} outputs and {len(references):,} references: one for each is wanted")
    if not references:
        raise InputError("there is nothing to evaluate: no line at all")


def answers(outputs: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> dict[str, float]:
    """Exact match, and the share of wanted tokens that stand where they should."""
    right = sum(a == b for got, want in zip(outputs, wanted, strict=True) for a, b in zip(got, want, strict=False))
    total = sum(max(len(got), len(want)) for got, want in zip(outputs, wanted, strict=True))
    exact = sum(list(got) == list(want) for got, want in zip(outputs, wanted, strict=True))
    return {"exact": exact / len(wanted), "accuracy": right / total if total else 1.0, "examples": len(wanted)}


def text_scores(loaded: "LoadedModel", documents: Sequence[str], context: int) -> dict[str, float]:
    """Perplexity per token and bits per byte, summed over all tokens, so that no batch weighs more than another."""
    model = loaded.require("decoder", "evaluate text")
    assert isinstance(model, DecoderOnly)
    texts = [loaded.document(text) for text in documents if text]
    if not any(len(text) > 1 for text in texts):
        raise InputError("there is nothing to evaluate: the text has fewer than two tokens")
    log_probs = score_texts(model, texts, context)
    total = -math.fsum(value for row in log_probs for value in row)
    tokens = sum(map(len, log_probs))
    special = set(loaded.tokenizer.special.values())
    size = sum(len(loaded.tokenizer.decode_bytes(t for t in text[1:] if t not in special)) for text in texts)
    return {
        "loss": total / tokens,
        "perplexity": math.exp(total / tokens),
        "bits_per_byte": total / math.log(2) / max(1, size),
        "tokens": tokens,
        "bytes": size,
    }


@torch.inference_mode()
def label_scores(loaded: "LoadedModel", data: Dataset, max_tokens: int = 4096) -> dict[str, float]:
    """An encoder-only model against the labels of its task: loss, accuracy, and sequences right as a whole."""
    model = loaded.require("encoder", "evaluate labels")
    assert isinstance(model, EncoderOnly)
    loss = right = count = exact = rows = 0.0
    for indices in data.plan(0, 0, max_tokens):
        batch = data.collate(indices).to(loaded.device)
        logits = model(**batch.inputs)
        seen = batch.labels != IGNORE
        log_probs = logits.log_softmax(-1).double()
        labels = batch.labels.masked_fill(~seen, 0)
        loss -= float(log_probs.gather(-1, labels[..., None])[..., 0][seen].sum())
        correct = (logits.argmax(-1) == labels) | ~seen
        right += float((correct & seen).sum())
        count += batch.count
        exact += float(correct.flatten(1).all(-1).sum() if correct.dim() > 1 else correct.sum())
        rows += len(batch.labels)
    return {"loss": loss / count, "accuracy": right / count, "exact": exact / rows, "examples": rows}
