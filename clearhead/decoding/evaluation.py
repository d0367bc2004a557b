"""How good is it? The measures people compare by, from the libraries they compare with.

Translations: BLEU, chrF and TER by sacreBLEU, each with its signature, because a score without one cannot be compared;
whether one system is better than another is tested by paired bootstrap resampling (Koehn, 2004). Language models:
perplexity per token, which depends on the tokenizer, and bits per byte, which does not. Tasks with one right answer:
the share of answers that are right as a whole, and of tokens. `held_out_scores` knows which of them a run asks for:

    held_out_scores(clearhead.load("runs/demo"), "runs/demo")["test"]["exact"]
"""

import math
import os
from collections.abc import Sequence
from typing import Any

import torch

from clearhead.data.batch import IGNORE, Dataset, Tally
from clearhead.data.files import find
from clearhead.data.settings import DataSettings
from clearhead.data.splits import held_out
from clearhead.data.text import read_text
from clearhead.data.windows import Windows
from clearhead.decoding.load import LoadedModel
from clearhead.decoding.scoring import score_texts
from clearhead.errors import InputError
from clearhead.model import DecoderOnly, EncoderOnly
from clearhead.run import Run
from clearhead.settings import from_dict

Scores = dict[str, Any]  # by the name of the measure


def corpus_scores(outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """{"BLEU": {"score": …, "signature": …}, …} of a whole test set."""
    check_lengths(outputs, references)
    result = {}
    for name, metric in _metrics().items():
        score = metric.corpus_score(list(outputs), [list(references)]).score
        result[name] = {"score": score, "signature": str(metric.get_signature())}
    return result


def compare(
    outputs: Sequence[str], baseline: Sequence[str], references: Sequence[str], resamples: int = 1000
) -> Scores:
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
    """Exact match, and the share of tokens in place: those of the model's own writing that stand where they should.
    (`token_accuracy`, in training, is another measure: there each token follows the true ones, not the model's own.)"""
    right = sum(a == b for got, want in zip(outputs, wanted, strict=True) for a, b in zip(got, want, strict=False))
    total = sum(max(len(got), len(want)) for got, want in zip(outputs, wanted, strict=True))
    exact = sum(list(got) == list(want) for got, want in zip(outputs, wanted, strict=True))
    return {"exact": exact / len(wanted), "tokens_in_place": right / total if total else 1.0, "examples": len(wanted)}


def text_scores(loaded: LoadedModel, documents: Sequence[str], context: int) -> dict[str, float]:
    """Perplexity per token and bits per byte, summed over all tokens, so that no batch weighs more than another.

    The bytes are those of the text itself, whatever tokens stand for them, `<unk>` too; only those of a first token
    that nothing predicts, as in a stream, are left out with it. An end of the text costs bits and has no bytes.
    """
    model = loaded.model_of_kind("decoder", "evaluate text")
    assert isinstance(model, DecoderOnly)
    documents = [text for text in documents if text]
    texts = [loaded.document(text) for text in documents]
    if not any(len(text) > 1 for text in texts):
        raise InputError("there is nothing to evaluate: the text has fewer than two tokens")
    log_probs = score_texts(model, texts, context)
    total = -math.fsum(value for row in log_probs for value in row)
    tokens = sum(map(len, log_probs))
    size = sum(predicted_bytes(loaded, text, ids) for text, ids in zip(documents, texts, strict=True))
    return {
        "loss": total / tokens,
        "perplexity": math.exp(total / tokens),
        "bits_per_byte": total / math.log(2) / max(1, size),
        "tokens": tokens,
        "bytes": size,
    }


def predicted_bytes(loaded: LoadedModel, text: str, ids: Sequence[int]) -> int:
    """How many bytes of the text the tokens after the first stand for."""
    tokenizer, size = loaded.tokenizer, len(text.encode(errors="surrogatepass"))
    if loaded.beginning is not None:
        return size
    # a tokenizer with <unk> has it for one character
    return size - (len(text[0].encode()) if ids[0] == tokenizer.unk_id else len(tokenizer.token_bytes(ids[0])))


@torch.inference_mode()
def label_scores(
    loaded: LoadedModel, data: Dataset, limit: int | None = None, max_tokens: int = 4096
) -> dict[str, float]:
    """An encoder-only model against the labels of its task: loss, token accuracy, and sequences right as a whole."""
    model = loaded.model_of_kind("encoder", "evaluate labels")
    assert isinstance(model, EncoderOnly)
    loss = right = count = exact = rows = 0.0
    for planned in (batch for block in range(data.blocks) for batch in data.plan(0, 0, max_tokens, block)):
        indices = [index for index in planned if limit is None or index < limit]
        if not indices:
            continue
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
    return {"loss": loss / count, "token_accuracy": right / count, "exact": exact / rows, "examples": rows}


def translation_scores(
    loaded: LoadedModel,
    sources: Sequence[str],
    references: Sequence[str],
    baseline: LoadedModel | Sequence[str] | None = None,
    **changes: Any,
) -> Scores:
    """Corpus scores of the model's translations; with a baseline (another model, or its output) also its, and p."""
    check_lengths(sources, references)
    outputs = [one.text for one in loaded.translate(sources, **changes)]
    if baseline is None:
        return corpus_scores(outputs, references)
    if isinstance(baseline, LoadedModel):
        baseline = [one.text for one in baseline.translate(sources, **changes)]
    return compare(outputs, baseline, references)


def text_file_scores(loaded: LoadedModel, file: str | os.PathLike[str], limit: int | None = None) -> Scores:
    """A language model on a text of yours, whose documents end where they did in training."""
    settings = DataSettings(text=str(file), documents=loaded.documents)  # type: ignore[arg-type]
    groups, texts = [find(str(file))], list[str]()
    for _, _, piece in read_text(groups, settings, None, "train", Tally()):
        texts = [*texts, piece.text] if piece.first else [*texts[:-1], texts[-1] + piece.text]
    return text_scores(loaded, texts[:limit], loaded.window())


def held_out_scores(
    loaded: LoadedModel,
    run: str | os.PathLike[str],  # the run whose recipe says what the data are
    *,
    limit: int | None = None,  # only the first so many examples
    baseline: LoadedModel | Sequence[str] | None = None,  # of translations: another model, or its output
    **changes: Any,  # decoding settings
) -> dict[str, Scores]:
    """The scores that fit the model's task on each held-out part of the run's own data: its test data, or where there
    is none its validation data, and further tests by name."""
    settings = from_dict(DataSettings, Run(run).settings.get("data", {}), "data.")
    recorded = Run(run).data_files()
    kind = loaded.model.config.kind
    if baseline is not None and (kind != "encoder-decoder" or settings.task is not None):
        raise InputError(f"a baseline is for translations, which the data of {run} are not: evaluate it by itself")
    if kind == "decoder":
        return {
            name: text_scores(loaded, data.documents(limit), loaded.window())
            for name, data in held_out(settings, loaded.tokenizer, None, recorded).items()
            if isinstance(data, Windows)
        }
    if settings.labels is not None:
        from clearhead.decoding.classify import Classifier, confusion_scores, confusions

        if not isinstance(loaded, Classifier) or loaded.labels != settings.labels:
            raise InputError(f"{loaded.name} does not know the labels of {run}")
        found = confusions(loaded, settings, limit, recorded)
        return {name: confusion_scores(*one, settings.labels) for name, one in found.items()}
    own = None if loaded.source_tokenizer is loaded.tokenizer else loaded.source_tokenizer
    results: dict[str, Scores] = {}
    for name, data in held_out(settings, loaded.tokenizer, own, recorded).items():
        if kind == "encoder":
            results[name] = label_scores(loaded, data, limit)
            continue
        examples = data.examples(limit)
        sources, references = [one.source for one in examples], [one.target for one in examples]
        if settings.task is None:
            results[name] = translation_scores(loaded, sources, references, baseline, **changes)
        else:
            made = [one.tokens for one in loaded.translate(sources, **changes)]
            results[name] = answers(made, [loaded.tokenizer.encode_ordinary(text) for text in references])
    return results
