"""A session over one run: a text goes in, and everything the page shows of that pass comes out.

Writing and scoring are kept apart. *Writing* is free decoding: the model goes on from what it has just written.
*Scoring* reads a given answer in one pass, as in training. An edit can leave the one as it was and ruin the other:
without the mask the newest token still has no future to look at, so what is written stays right, while the
probabilities of the same answer, read at once, collapse. The JavaScript of the single file answers the same requests
with the same shapes (alive.js).
"""

import math
import re
import secrets
import threading
import time
from collections import OrderedDict
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clearhead.decoding.attention import names
from clearhead.decoding.load import LoadedModel, load
from clearhead.decoding.sample import Sampling
from clearhead.decoding.steps import using_threads
from clearhead.errors import InputError
from clearhead.explore.beam_tree import Node, beam_settings, hypotheses, search
from clearhead.explore.describe import attention_rows, cache_bytes, describe, describe_unread, described, pieces
from clearhead.explore.early_guesses import early_guesses
from clearhead.explore.history import training
from clearhead.explore.interventions import combine, even, find_head, silence, switched
from clearhead.explore.readings import Reading, given_answer, read_text, traced, with_answer
from clearhead.explore.requests import Edits, OfPass, PassRequest, Search, TensorRequest
from clearhead.explore.wire import Sent, pack, part, pooled
from clearhead.explore.worth import worths
from clearhead.explore.writing import Written, likeliest, write
from clearhead.model import Trace
from clearhead.model.trace import Edit
from clearhead.run import Run

HALVES = re.compile("[\ud800-\udfff]")  # of characters; alone they are none
KEPT = 6  # passes whose tensors can still be asked for
MOST_BYTES = 1 << 30  # of these together; two passes stay in any case, that before an edit and that after
MOST_LOGITS = 1 << 22  # numbers; more are not kept, the likeliest tokens are told apart
CHECKPOINTS = 4  # models in memory at a time


@dataclass(frozen=True)
class Pass:
    """What is kept of a pass."""

    loaded: LoadedModel
    reading: Reading
    edit: Edit
    taken: Trace


class Session:
    """One run, its checkpoints, and the last passes. One thread at a time computes."""

    def __init__(self, run: str, checkpoint: str = "best", device: str = "auto", threads: int | None = None) -> None:
        self.run, self.checkpoint = Run(run), checkpoint
        self.device, self.threads = device, threads
        self.models: OrderedDict[str, LoadedModel] = OrderedDict()
        self.passes: OrderedDict[str, Pass] = OrderedDict()
        self.lock = threading.Lock()
        if self.run.inventory() or not self.run.settings:  # of a run that has just begun, training can be watched
            self.loaded(checkpoint)

    def loaded(self, checkpoint: str | None = None) -> LoadedModel:
        """The model of a checkpoint; the last few stay in memory."""
        name = self.run.checkpoint(checkpoint or self.checkpoint).name
        if name not in self.models:
            self.models[name] = load(self.run.path, name, self.device, self.threads)
        self.models.move_to_end(name)
        while len(self.models) > CHECKPOINTS:
            self.models.popitem(last=False)
        return self.models[name]

    # ---- what the page asks ----------------------------------------------------------------------------------------

    def model(self) -> dict[str, Any]:
        """The run and its model, as far as the page needs to know them."""
        with self.lock:
            if not self.models and not self.run.inventory():
                return describe_unread(self.run)
            return describe(self.loaded(), self.run, self.checkpoint)

    def training(self, after: int = 0) -> dict[str, Any]:
        """Metrics of the steps after `after`, and the checkpoints kept."""
        return training(self.run, after)

    def read(self, asked: PassRequest) -> dict[str, Any]:
        """One pass: what is written, what is scored, and the table of the tensors made."""
        with self.lock, torch.inference_mode(), computing(self.loaded(asked.checkpoint)):
            return self._read(asked)

    def worth(self, asked: OfPass) -> dict[str, Any]:
        """What each head and layer is worth for the answer of a pass."""
        with self.lock:
            kept = self._kept(asked.id)
            with computing(kept.loaded):
                found = worths(kept.loaded, kept.reading, kept.edit)
        rows = [{"at": one.name, "worth": one.worth, "by_token": one.by_token} for one in (*found.heads, *found.layers)]
        heads = len(found.heads)
        return {"log_probs": found.log_probs, "heads": rows[:heads], "layers": rows[heads:]}

    def guesses(self, asked: OfPass) -> dict[str, Any]:
        """The residual stream's guess after each sub-layer."""
        with self.lock:
            kept = self._kept(asked.id)
            with computing(kept.loaded):
                found = early_guesses(kept.loaded, kept.reading, kept.taken) if kept.reading.answer else []
            return {
                "states": [
                    {
                        "at": one.at,
                        "tensor": one.tensor,
                        "guesses": [
                            {**token, "p": p, "right": right}
                            for token, p, right in zip(
                                self._tokens(kept.loaded, one.best, said=True), one.probability, one.right, strict=True
                            )
                        ],
                    }
                    for one in found
                ]
            }

    def tensors(self, asked: TensorRequest) -> bytes:
        """Tensors of a pass, and parameters of its model, as bytes (wire.py)."""
        with self.lock:
            kept = self._kept(asked.id)
            parameters: dict[str, Tensor] = dict(kept.loaded.model.named_parameters())
            sent = []
            for wanted in asked.wanted:
                name = wanted.name
                if name.startswith("model:") and name[6:] in parameters:
                    whole, letters = parameters[name[6:]], ""
                elif name in kept.taken.tensors:
                    whole, letters = kept.taken.tensors[name], kept.taken.letters[name]
                else:
                    raise InputError(f"the pass has no tensor {name!r:.120}")
                found = part(whole, wanted.index, name)
                letters = " ".join(letters.split()[len(wanted.index) :])
                if wanted.pool is not None and found.dim() >= 2:
                    found = pooled(found, wanted.pool)
                sent.append(Sent(name, letters, found, wanted.index))
            return pack(sent, half=asked.dtype == "float16")

    # ---- how it is made --------------------------------------------------------------------------------------------

    def _kept(self, key: str) -> Pass:
        if key not in self.passes:
            raise InputError("that pass is no longer kept: read the text again")
        self.passes.move_to_end(key)
        return self.passes[key]

    def _read(self, asked: PassRequest) -> dict[str, Any]:
        started = time.perf_counter()
        loaded = self.loaded(asked.checkpoint)
        text = HALVES.sub("\ufffd", asked.text)
        reading, edit = read_text(loaded, text), edits_of(loaded, asked.edits)
        encoder_only = reading.places is not None
        written, tree = None, None
        if asked.write and not encoder_only:
            written, tree = write_as(loaded, reading, edit, asked)
        scored = answer_to_score(loaded, reading, edit, asked, written)
        log_probs, taken = traced(loaded, scored, edit)
        looked, seen = scored, taken
        if asked.look == "writing" and written is not None and tuple(written.ids) != scored.answer:
            looked = with_answer(loaded, reading, written.ids)
            seen = traced(loaded, looked, edit)[1]
        key = self._keep(Pass(loaded, looked, edit, seen)) if asked.keep else None
        return {
            "id": key,
            "kind": loaded.model.config.kind,
            "checkpoint": self.run.checkpoint(asked.checkpoint or self.checkpoint).name,
            "text": text,
            "cut": reading.cut,
            "look": asked.look if written is not None else "scoring",
            "source": self._tokens(loaded, reading.source),
            "read": self._tokens(loaded, looked.read),
            "predicted": self._predicted(loaded, looked),
            "prompt": len(reading.prompt),
            "rows": list(looked.rows),
            "answer": self._tokens(loaded, looked.answer, said=True),
            "writing": None if written is None else self._writing(loaded, written),
            "scoring": self._scoring(loaded, scored, log_probs),
            "beam": None if tree is None else self._tree(loaded, tree),
            "pieces": pieces(loaded, text),
            "attentions": attention_rows(loaded, seen),
            "tensors": [described(name, seen) for name in seen] if asked.keep else [],
            "cache": cache_bytes(loaded, looked),
            "milliseconds": 1e3 * (time.perf_counter() - started),
        }

    def _keep(self, made: Pass) -> str:
        key = secrets.token_hex(8)
        logits = made.taken.tensors.get("output.logits")
        if logits is not None and logits.numel() > MOST_LOGITS:
            del made.taken.tensors["output.logits"]
        self.passes[key] = made
        while len(self.passes) > KEPT or (len(self.passes) > 2 and self._bytes() > MOST_BYTES):
            self.passes.popitem(last=False)
        return key

    def _bytes(self) -> int:
        return sum(tensor.nbytes for made in self.passes.values() for tensor in made.taken.tensors.values())

    def _tokens(self, loaded: LoadedModel, ids: Any, said: bool = False) -> list[dict[str, Any]]:
        """Ids with names that can be read; what an encoder-only model with classes says are labels."""
        if said and loaded.model.config.kind == "encoder" and loaded.model.config.head.classes:
            return [{"id": label, "text": str(label)} for label in ids]
        known = token_names(loaded)
        return [{"id": token, "text": known[token]} for token in ids]

    def _predicted(self, loaded: LoadedModel, looked: Reading) -> list[dict[str, Any]]:
        """What each row of the decoder predicts: the token after the one that it reads."""
        return self._tokens(loaded, [*looked.read[1:], *looked.answer[-1:]]) if looked.read else []

    def _writing(self, loaded: LoadedModel, written: Written) -> dict[str, Any]:
        return {
            "ids": written.ids,
            "tokens": self._tokens(loaded, written.ids),
            "text": said(loaded, written.ids),
            "log_probs": written.log_probs,
            "log_prob": math.fsum(written.log_probs),
            "finished": written.finished,
            "forced": written.forced,
            "top": [self._top(loaded, step) for step in written.top],
        }

    def _scoring(self, loaded: LoadedModel, scored: Reading, log_probs: Tensor) -> dict[str, Any] | None:
        if not scored.answer:
            return None
        picked = log_probs.gather(1, torch.tensor(scored.answer, device=log_probs.device)[:, None])[:, 0].tolist()
        return {
            "ids": list(scored.answer),
            "tokens": self._tokens(loaded, scored.answer, said=True),
            "text": said(loaded, scored.answer),
            "log_probs": picked,
            "log_prob": math.fsum(picked),
            "top": [self._top(loaded, likeliest(row)) for row in log_probs],
        }

    def _top(self, loaded: LoadedModel, step: list[tuple[int, float]]) -> list[dict[str, Any]]:
        tokens = self._tokens(loaded, [token for token, _ in step], said=True)
        return [{**token, "p": p} for token, (_, p) in zip(tokens, step, strict=True)]

    def _tree(self, loaded: LoadedModel, columns: list[list[Node]]) -> dict[str, Any]:
        steps = [
            [
                {
                    **token,
                    "log_prob": node.log_prob,
                    "total": node.total,
                    "parent": node.parent,
                    "kept": node.kept,
                    "finished": node.finished,
                    "score": node.score,
                }
                for token, node in zip(self._tokens(loaded, [node.token for node in column]), column, strict=True)
            ]
            for column in columns
        ]
        best = [
            {"ids": one.tokens, "text": said(loaded, one.tokens), "log_prob": one.log_prob, "score": one.score}
            for one in hypotheses(columns)
        ]
        return {"columns": steps, "hypotheses": best}


def computing(loaded: LoadedModel) -> AbstractContextManager[None]:
    """As many threads as were asked for, or as suit the model: one for a small one, which several only hold up."""
    return using_threads(loaded.threads, loaded.device)


@lru_cache(maxsize=CHECKPOINTS)
def token_names(loaded: LoadedModel) -> list[str]:
    """A name for every id of the model that can be read on a page; ids that no token has are called by their number."""

    def name(token: int) -> str:
        try:
            return names(loaded, [token])[0]
        except InputError:
            return f"id {token}"

    return [name(token) for token in range(max(loaded.model.config.vocab_size, loaded.tokenizer.size))]


def edits_of(loaded: LoadedModel, edits: Edits) -> Edit:
    """Switches first, then heads made even, then heads silenced."""
    config = loaded.model.config
    heads = [even(*find_head(config, name)) for name in edits.even]
    heads += [silence(*find_head(config, name)) for name in edits.off]
    return combine(switched(config, list(edits.sw)), *heads)


def write_as(
    loaded: LoadedModel, reading: Reading, edit: Edit, asked: PassRequest
) -> tuple[Written, list[list[Node]] | None]:
    """Write by the search that was asked for; beam search also gives its tree."""
    how, force = asked.search, {pair[0]: pair[1] for pair in asked.edits.force}
    if how.kind == "beam":
        if force:
            raise InputError("a forced token goes with greedy search or sampling, not with a beam")
        return search(loaded, reading, beam_settings(loaded, how.beam_size, how.length_penalty), edit, asked.max_tokens)
    return write(loaded, reading, edit, force, sampling_of(how), asked.max_tokens), None


def sampling_of(how: Search) -> Sampling | None:
    if how.kind != "sample":
        return None
    return Sampling(how.temperature, how.top_k, how.top_p, how.min_p, how.seed)


def answer_to_score(
    loaded: LoadedModel, reading: Reading, edit: Edit, asked: PassRequest, written: Written | None
) -> Reading:
    """The answer that is read in one pass: the one given, or what was written, or what the head says."""
    if asked.answer is not None:
        return with_answer(loaded, reading, asked.answer)
    if asked.target is not None:
        return given_answer(loaded, reading, asked.target)
    if written is not None:
        return with_answer(loaded, reading, written.ids)
    if not reading.places:
        return reading
    log_probs, _ = traced(loaded, reading, edit)
    return with_answer(loaded, reading, log_probs.argmax(-1).tolist())


def said(loaded: LoadedModel, ids: Any) -> str:
    """An answer as text: without the end token, labels with spaces between."""
    config = loaded.model.config
    if config.kind == "encoder" and config.head.classes:
        return " ".join(map(str, ids))
    ids = list(ids)
    return loaded.tokenizer.decode(ids[:-1] if ids and ids[-1] == loaded.tokenizer.eos_id else ids)
