"""Which label a text has, by a run that was trained on labels: `load(RUN).predict(["3 mars 2029"])`.

Texts are read exactly as in training (data/labelled.py). Accuracy counts texts; macro-F1 is the mean over the labels of
2·right / (predicted + wanted), so that a rare label weighs as much as a frequent one.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.data.labelled import Labelled, labelled_ids, macro_f1
from clearhead.data.settings import DataSettings
from clearhead.data.splits import held_out
from clearhead.decoding.load import LoadedModel, load
from clearhead.decoding.results import Prediction
from clearhead.decoding.scoring import batches, right_pad
from clearhead.errors import InputError, require
from clearhead.run import Run
from clearhead.settings import from_dict

Confusion = NDArray[np.int64]  # (wanted, predicted)


class Classifier(LoadedModel):
    """A model with the names of its labels: what `clearhead.load` makes of a run that was trained on labels."""

    labels: tuple[str, ...]

    def __init__(self, *args: Any, labelled: Mapping[str, Any], **rest: Any) -> None:
        super().__init__(*args, **rest)
        try:
            settings = from_dict(DataSettings, labelled, "data.")
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from None
        self.labels, self.max_length = settings.labels or (), settings.max_length
        head, count = self.model.config.head, len(self.labels)
        fits = head.kind == "pooled" and head.classes == count
        require(fits, f"{self.name}: {count} labels for a head {head.kind!r} of {head.classes} classes")

    @property
    def pairs(self) -> bool:
        """Whether it was trained on two texts at a time: only then are there segments to tell them apart."""
        return self.model.config.embedding.segments > 1

    def ids(self, text: str, second: str | None = None) -> tuple[list[int], list[int], bool]:
        """A text or two as the model reads them, the segment of each token, and whether something was cut off."""
        table = self._table()
        most = self.max_length if table is None else min(self.max_length, table)
        read = labelled_ids(self.tokenizer, text, second, most)
        require(bool(read[0]), "a text without a single token has no label")
        return read

    def tokens(self, text: str) -> list[int]:
        return self.ids(text)[0] if text.strip() else []

    def predict(self, texts: Sequence[str | tuple[str, str]]) -> list[Prediction]:
        """The label of each text, or of each pair of texts."""
        read = [self.ids(text) if isinstance(text, str) else self.ids(*text) for text in texts]
        found = self.probabilities([ids for ids, _, _ in read], [segments for _, segments, _ in read])
        best = found.argmax(-1).tolist()
        return [
            Prediction(self.labels[place], row[place], tuple(row))
            for place, row in zip(best, found.tolist(), strict=True)
        ]

    def probabilities(self, ids: Sequence[list[int]], segments: Sequence[list[int]]) -> NDArray[np.float64]:
        """(texts, labels)"""
        result = np.zeros((len(ids), len(self.labels)))
        with self._threads(), torch.inference_mode():
            for rows in batches([len(one) for one in ids]):
                tokens, real = right_pad([ids[i] for i in rows], self.device)
                inputs: dict[str, Any] = {"tokens": tokens, "real": real}
                if any(any(segments[i]) for i in rows):
                    inputs["segments"] = right_pad([segments[i] for i in rows], self.device)[0]
                result[rows] = self.model(**inputs).double().softmax(-1).cpu().numpy()
        return result


def load_classifier(
    run: str | os.PathLike[str], checkpoint: str = "best", device: str = "auto", threads: int | None = None
) -> Classifier:
    """What `load` gives for a run that was trained on labels; any other run is refused."""
    loaded = load(run, checkpoint, device, threads)
    if not isinstance(loaded, Classifier):
        raise InputError(
            f"{loaded.name} was not trained on labels: predict is for runs of data.labelled or 'languages'"
        )
    return loaded


def label_settings(run: Run) -> DataSettings | None:
    """The table `data` of a run with labels; None for any other run."""
    table = run.settings.get("data")
    if not isinstance(table, dict) or "labels" not in table:
        return None
    try:
        return from_dict(DataSettings, table, "data.")
    except InputError as error:
        raise InputError(f"{run.path / 'config.toml'}: {error}") from None


def confusions(
    classifier: Classifier,
    settings: DataSettings,
    limit: int | None = None,
    recorded: Mapping[str, str] | None = None,  # the sums of the run's files
) -> dict[str, tuple[Confusion, float]]:
    """On each held-out part of the run's own data: how often each label was taken for each, and the loss."""
    result = {}
    for name, data in held_out(settings, classifier.tokenizer, None, recorded).items():
        assert isinstance(data, Labelled)
        assert data.labels == classifier.labels
        count = len(data) if limit is None else min(limit, len(data))
        ids = [data.tokens[i].tolist() for i in range(count)]
        firsts = data.columns["first"][:count].tolist()
        segments = [[0] * first + [1] * (len(row) - first) for first, row in zip(firsts, ids, strict=True)]
        found, wanted = classifier.probabilities(ids, segments), data.wanted(range(count))
        table = np.zeros((len(data.labels),) * 2, dtype=np.int64)
        np.add.at(table, (wanted, found.argmax(-1)), 1)
        loss = -float(np.log(np.maximum(found[np.arange(count), wanted], 1e-300)).mean())
        result[name] = table, loss
    return result


def confusion_scores(table: Confusion, loss: float, labels: Sequence[str]) -> dict[str, Any]:
    """Accuracy, macro-F1 and what is confused most."""
    wrong = table - np.diag(np.diag(table))
    order = np.argsort(-wrong, axis=None, kind="stable")[:5]
    pairs = [divmod(int(place), len(labels)) for place in order]
    return {
        "accuracy": float(np.trace(table) / table.sum()),
        "macro_F1": macro_f1(np.diag(table), table.sum(0), table.sum(1)),
        "loss": loss,
        "examples": int(table.sum()),
        **{f"{labels[a]} taken for {labels[b]}": int(wrong[a, b]) for a, b in pairs if wrong[a, b]},
    }


def draw_confusion(table: Confusion, labels: Sequence[str], title: str) -> Any:
    """The matplotlib figure: a row for each label as it is, a column for each as it was predicted."""
    from matplotlib.figure import Figure

    count = len(labels)
    share = table / np.maximum(table.sum(1, keepdims=True), 1)
    size = min(20.0, 3.5 + 0.22 * count)
    made = Figure(figsize=(size + 1, size), layout="constrained")
    axes = made.subplots()
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    made.colorbar(image, ax=axes, shrink=0.6, label="share of the row")
    axes.set(xlabel="predicted", ylabel="wanted", title=title)
    axes.set_xticks(range(count), labels, rotation=90, fontsize=8)
    axes.set_yticks(range(count), labels, fontsize=8)
    if count <= 60:
        for a, b in np.argwhere(table > 0).tolist():
            colour = "white" if share[a, b] > 0.5 else "black"
            axes.text(b, a, str(table[a, b]), ha="center", va="center", fontsize=5 if count > 20 else 8, color=colour)
    return made
