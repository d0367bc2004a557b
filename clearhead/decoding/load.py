"""From a run to something to use: `clearhead.load("runs/demo").translate(["…"])`.

One object holds the model, its tokenizer and the run's decoding settings. What it can do depends on the kind of model:
an encoder-decoder translates, a language model generates, both score, an encoder-only model encodes and predicts.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Literal, cast

import torch
from torch import Tensor

from clearhead.data.pairs import source_ids, target_ids
from clearhead.decoding.alignment import Alignment, align
from clearhead.decoding.beam import BeamSearch, beam_search
from clearhead.decoding.constraints import Constraints
from clearhead.decoding.encoder_tokens import encoder_tokens
from clearhead.decoding.fast_steps import FastDecoding
from clearhead.decoding.greedy import greedy, walk
from clearhead.decoding.int8 import Precision, check_precision
from clearhead.decoding.results import Continuation, Score, Translation
from clearhead.decoding.sample import Sampling, sample
from clearhead.decoding.scoring import batches, right_pad, score_pairs, score_texts
from clearhead.decoding.steps import Hypothesis, Steps, using_threads
from clearhead.decoding_settings import DecodingSettings
from clearhead.errors import InputError, require
from clearhead.machine import pick_device
from clearhead.model import DecoderOnly, EncoderDecoder, EncoderOnly, Transformer
from clearhead.ranges import MOST_THREADS
from clearhead.run import CONFIG, Run
from clearhead.settings import convert, from_dict
from clearhead.tokenizer.base import Tokenizer

CAN = {
    "encoder-decoder": "translate and score",
    "decoder": "generate, stream and score",
    "encoder": "encode and predict",
}
MOST_SCORED = 4096  # tokens that are scored in one pass, unless the model was trained on more; attention is quadratic
Documents = Literal["none", "line", "blank-line", "file"]  # what ends a document, as `DataSettings` has it
SMALL = 3_000_000  # parameters; below, a second thread costs more than it brings


def load(
    run: str | os.PathLike[str],
    checkpoint: str = "best",
    device: str = "auto",
    threads: int | None = None,
    precision: Precision = "float32",
) -> "LoadedModel":
    """The model of a run, ready to use. `checkpoint` is best, latest, average or step_N; int8 is for decoding."""
    opened, place = Run(run), pick_device(device)
    check_precision(precision, place)
    model = opened.build(checkpoint)
    tokenizer, source = opened.tokenizers(model.config)
    try:
        tables = {name: convert(dict, opened.settings.get(name, {}), name) for name in ("decoding", "data")}
        settings = from_dict(DecodingSettings, tables["decoding"], "decoding.")
        # a model from elsewhere says nothing of the texts it was trained on: each of ours is a whole one to it
        usual = "none" if "data" in opened.settings else "file"
        documents = convert(Documents, tables["data"].get("documents", usual), "data.documents")
        context = convert(int | None, tables["data"].get("context"), "data.context")
        require(context is None or 0 < context < 1 << 31, f"data.context must be from 1 to 2^31, not {context}")
    except InputError as error:
        raise InputError(f"{opened.path / CONFIG}: {error}") from None
    rest = (settings, documents, context, str(place), threads, str(opened.path), source, precision)
    if "labels" in tables["data"]:
        from clearhead.decoding.classify import Classifier  # is made of what stands below

        return Classifier(model, tokenizer, *rest, labelled=tables["data"])
    return LoadedModel(model, tokenizer, *rest)


class LoadedModel:
    """A model with its tokenizer. Every method takes and gives text; settings not given are the run's."""

    labels: tuple[str, ...] | None = None  # of a classifier (classify.py)

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        settings: DecodingSettings | None = None,
        documents: str = "blank-line",  # language models: what ended a document in training; none: nothing did
        context: int | None = None,  # … and windows of this many tokens
        device: str = "cpu",
        threads: int | None = None,  # None: one for a small model, otherwise what torch has
        name: str = "the model",
        source_tokenizer: Tokenizer | None = None,  # where the source has a vocabulary of its own
        precision: Precision = "float32",
    ) -> None:
        self.model = model.to(device).eval()
        self.tokenizer = tokenizer
        self.source_tokenizer = source_tokenizer or tokenizer
        self.settings = settings or DecodingSettings()
        self.documents, self.context = documents, context
        self.device, self.name = torch.device(device), name
        small = sum(parameter.numel() for parameter in model.parameters()) < SMALL
        self.precision = precision
        self._fast: FastDecoding | None = None
        most = f"threads must be between 1 and {MOST_THREADS}, not {threads}"
        require(threads is None or 1 <= threads <= MOST_THREADS, most)
        self.threads = threads or (1 if small else torch.get_num_threads())

    # ---- encoder-decoder -------------------------------------------------------------------------------------------

    def translate(
        self,
        lines: Sequence[str] | str,
        *,
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,  # how each translation must begin
        alignment: bool = False,
        **changes: Any,
    ) -> list[Translation]:
        """Translate each line; further keywords are decoding settings, such as beam_size=1."""
        lines = [lines] if isinstance(lines, str) else list(lines)
        sources = [self.source(line, number)[0] for number, line in enumerate(lines, 1)]
        forced = [self.tokenizer.encode_ordinary(text) for text in prefixes] if prefixes is not None else None
        return self.translate_ids(sources, n_best=n_best, prefixes=forced, alignment=alignment, **changes)

    def source(self, text: str, number: int = 1) -> tuple[list[int], bool]:
        """A source as the encoder reads it, and whether it had to be cut to `max_source` tokens."""
        self.model_of_kind("encoder-decoder", "translate")
        most = min(self.settings.max_source, self._table() or self.settings.max_source)
        # the tokens kept come from the beginning of the text: no need to tokenize a megabyte for them
        part = text[: 64 * most]
        try:
            ids = source_ids(self.source_tokenizer, part)
        except InputError as error:
            raise InputError(f"line {number}: {error}") from None
        return ids if len(ids) <= most else [*ids[: most - 1], ids[-1]], len(ids) > most or len(part) < len(text)

    def translate_ids(
        self,
        sources: Sequence[Sequence[int]],
        *,
        n_best: int = 1,
        prefixes: Sequence[Sequence[int]] | None = None,
        alignment: bool = False,
        **changes: Any,
    ) -> list[Translation]:
        """The same for sources that are ids already, their end token included."""
        model = cast(EncoderDecoder, self.model_of_kind("encoder-decoder", "translate"))
        if prefixes is not None and len(prefixes) != len(sources):
            raise InputError(f"found {len(prefixes)} prefixes for {len(sources)} sources: one for each is wanted")
        settings = self.settings.changed(changes)
        search = self._beam_search(settings, n_best)
        result: list[Translation | None] = [None] * len(sources)
        with self._threads(), torch.inference_mode():
            for rows in batches([len(source) for source in sources], max(1, 128 // settings.beam_size)):
                chosen = [sources[i] for i in rows]
                prompts = [[self._start, *(prefixes[i] if prefixes is not None else [])] for i in rows]
                limits = [
                    self._limit(len(source) + settings.max_extra, len(prompt))
                    for source, prompt in zip(chosen, prompts, strict=True)
                ]
                steps = self._steps(*right_pad(chosen, self.device))
                if settings.beam_size == 1:
                    found = [[h] for h in greedy(steps, prompts, limits, self._end, search.constraints)]
                else:
                    found = beam_search(steps, prompts, limits, self._end, search)
                whole = [[[*prompt[1:], *h.tokens] for h in pool] for prompt, pool in zip(prompts, found, strict=True)]
                forced = self._forced(chosen, prompts)
                links = align(model, chosen, [best[0] for best in whole], self._start) if alignment else None
                for row, index in enumerate(rows):
                    result[index] = self._translation(
                        found[row], whole[row], forced[row], links[row] if links else None
                    )
        return cast(list[Translation], result)

    def _forced(self, sources: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of the tokens that each translation was made to begin with; none where it was not."""
        result: list[list[float]] = [[] for _ in prompts]
        given = [row for row, prompt in enumerate(prompts) if len(prompt) > 1]
        model = cast(EncoderDecoder, self.model)
        found = score_pairs(model, [sources[row] for row in given], [prompts[row] for row in given])
        for row, log_probs in zip(given, found, strict=True):
            result[row] = log_probs
        return result

    def _beam_search(self, settings: DecodingSettings, n_best: int) -> BeamSearch:
        marks = (self.tokenizer.pad_id, self.tokenizer.bos_id)
        constraints = Constraints(
            settings.min_length,
            settings.no_repeat_ngram,
            settings.repetition_penalty,
            (*(mark for mark in marks if mark is not None and mark != self._end), *self.without_token),
        )
        return BeamSearch(
            settings.beam_size,
            settings.length_penalty,
            settings.length_form,
            n_best,
            settings.refill,
            constraints,
        )

    def _translation(
        self, pool: list[Hypothesis], whole: list[list[int]], forced: list[float], links: Alignment | None
    ) -> Translation:
        made = [
            Translation(self.tokenizer.decode(tokens), tokens, [*forced, *h.log_probs], h.score, h.finished)
            for h, tokens in zip(pool, whole, strict=True)
        ]
        best = made[0]
        return Translation(best.text, best.tokens, best.log_probs, best.score, best.finished, links, tuple(made[1:]))

    # ---- decoder-only ----------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[str] | str = "", *, seed: int = 0, samples: int = 1, **changes: Any
    ) -> list[Continuation]:
        """Continue each prompt, `samples` times; the continuations of one prompt follow each other."""
        prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        settings = self.settings.changed(changes)
        self.model_of_kind("decoder", "generate")
        result: list[list[Continuation]] = [[] for _ in prompts]
        ids, decode = [self.prompt(text) for text in prompts], self.tokenizer.decode_after
        with self._threads():
            for rows in batches([len(prompt) for prompt in ids], max(1, 64 // samples)):
                chosen = [ids[i] for i in rows]
                limits = [self._limit(settings.max_tokens, len(prompt)) for prompt in chosen]
                how, constraints = self._sampling(settings, seed)
                found = sample(self._steps(), chosen, limits, self._end, how, constraints, samples)
                for index, pool in zip(rows, found, strict=True):
                    result[index] = [
                        Continuation(decode(ids[index], h.tokens), h.tokens, h.log_probs, h.finished) for h in pool
                    ]
        return [continuation for pool in result for continuation in pool]

    def stream(self, prompt: str = "", *, seed: int = 0, **changes: Any) -> Iterator[str]:
        """The same text as `generate`, piece by piece as it is written; incomplete characters are held back."""
        ids, settings = self.prompt(prompt), self.settings.changed(changes)
        how, constraints = self._sampling(settings, seed)
        limit, decoder = self._limit(settings.max_tokens, len(ids)), self.tokenizer.decoder(ids)
        with self._threads(), torch.inference_mode():
            steps = self._steps()
            logits = steps.start([ids])
            written = walk(steps, logits, [ids], [limit], self._end, constraints, how.chooser(), with_log_probs=False)
        while True:
            # the mode and the threads are ours only while we compute, not while the caller has the piece
            with self._threads(), torch.inference_mode():
                step = next(written, None)
            if step is None:
                break
            if step[0].token != self._end:
                yield decoder.push(step[0].token)
        yield decoder.finish()

    def prompt(self, text: str) -> list[int]:
        """A prompt as the model reads it. A document begins with its mark; in a stream there is none."""
        self.model_of_kind("decoder", "generate")
        ids = self.tokenizer.encode_ordinary(text)
        if ids and self.tokenizer.around is not None:
            ids = [*self.tokenizer.around[0], *ids]
        elif (mark := self.beginning) is not None:
            ids = [mark, *ids]
        elif not ids and self.documents == "none":
            ids = self.tokenizer.encode_ordinary("\n")
        if not ids:
            raise InputError("an empty prompt, and the tokenizer has no token for a beginning: give a prompt")
        return ids

    @property
    def beginning(self) -> int | None:
        """The mark that a document begins with; a stream has none."""
        if self.documents == "none":
            return None
        return self.tokenizer.bos_id if self.tokenizer.bos_id is not None else self.tokenizer.eos_id

    def document(self, text: str) -> list[int]:
        """A whole text as the model reads it, with its end where texts have one."""
        return [*self.prompt(text), *([] if self._end is None else [self._end])]

    def _sampling(self, settings: DecodingSettings, seed: int) -> tuple[Sampling, Constraints]:
        how = Sampling(settings.temperature, settings.top_k, settings.top_p, settings.min_p, seed)
        return how, self._beam_search(settings, 1).constraints

    # ---- both ------------------------------------------------------------------------------------------------------

    def score(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> list[Score]:
        """Log-probabilities of targets given their sources; of a language model, of the texts themselves."""
        with self._threads():
            if targets is None:
                model = cast(DecoderOnly, self.model_of_kind("decoder", "score texts without sources"))
                texts = [self.document(text) for text in sources]
                longest = max(map(len, texts), default=1)
                found = score_texts(model, texts, self._table() or min(longest, max(MOST_SCORED, self.window())))
                return [Score(text[1:], log_probs) for text, log_probs in zip(texts, found, strict=True)]
            if len(sources) != len(targets):
                raise InputError(f"found {len(sources)} sources and {len(targets)} targets: one for each is wanted")
            pairs = cast(EncoderDecoder, self.model_of_kind("encoder-decoder", "score targets"))
            ids = [self.source(text, number)[0] for number, text in enumerate(sources, 1)]
            wanted = [self.target(text, number) for number, text in enumerate(targets, 1)]
            found = score_pairs(pairs, ids, wanted)
            return [Score(target[1:], log_probs) for target, log_probs in zip(wanted, found, strict=True)]

    def target(self, text: str, number: int = 1) -> list[int]:
        """A target as the decoder reads it, with both its marks; refused if it is longer than can be scored at once."""
        most = self._table() or max(MOST_SCORED, self.settings.max_source)
        ids = target_ids(self.tokenizer, text[: 64 * most])
        if len(ids) - 1 > most or len(text) > 64 * most:
            raise InputError(f"line {number}: the target has more than {most:,} tokens, the most that can be scored")
        return ids

    def check_scorable(self, text: str, target: str | None = None) -> None:
        """Refuse a line that `score` would refuse together with all others."""
        if target is None:
            self.document(text)
        else:
            self.source(text)
            self.target(target)

    # ---- encoder-only ----------------------------------------------------------------------------------------------

    def encode(self, lines: Sequence[str]) -> list[Tensor]:
        """The last hidden states of each line, (tokens, D) each."""
        return [states for states, _ in self._encoded(lines)]

    def predict(self, lines: Sequence[str]) -> list[Any]:
        """What the head makes of each line: a tensor (tokens, classes or V), (classes,) or (D,) by its kind."""
        return [made for _, made in self._encoded(lines)]

    def tokens(self, text: str) -> list[int]:
        """A text as an encoder-only model reads it, cut where the model cannot go on; <mask> is the token."""
        return encoder_tokens(self.tokenizer, text, self._table() or self.settings.max_source)

    def _encoded(self, lines: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        model = cast(EncoderOnly, self.model_of_kind("encoder", "encode"))
        ids = [self.tokens(line) for line in lines]
        if not all(ids):
            raise InputError(f"line {[bool(one) for one in ids].index(False) + 1} has no tokens: nothing to encode")
        result: list[tuple[Tensor, Tensor] | None] = [None] * len(lines)
        with self._threads(), torch.inference_mode():
            for rows in batches([len(one) for one in ids]):
                tokens, real = right_pad([ids[i] for i in rows], self.device)
                hidden = model.hidden(tokens, real)
                made = model.head(hidden, real)
                for row, index in enumerate(rows):
                    length = len(ids[index])
                    whole = made.dim() == 2  # one for the sequence
                    result[index] = hidden[row, :length], made[row] if whole else made[row, :length]
        return cast(list[tuple[Tensor, Tensor]], result)

    # ---- what they share -------------------------------------------------------------------------------------------

    def model_of_kind(self, kind: str, verb: str) -> Transformer:
        """The model, if it is of this kind; otherwise a word about what it can do."""
        found = self.model.config.kind
        if found != kind:
            raise InputError(f"{self.name} cannot {verb}: its model is of the kind {found!r}, which can {CAN[found]}")
        return self.model

    @property
    def _start(self) -> int:
        mark = self.tokenizer.bos_id
        if mark is None:
            raise InputError("the tokenizer has no <s>, with which every translation begins")
        return mark

    @property
    def _end(self) -> int | None:
        apart = self.model.config.kind == "encoder-decoder" or self.documents != "none"
        return self.tokenizer.eos_id if apart else None

    @cached_property
    def without_token(self) -> list[int]:
        """Rows of the vocabulary that no token has: an embedding may be larger than its tokenizer. Never written."""
        return [*self.tokenizer.unused(), *range(self.tokenizer.size, self.model.config.vocab_size)]

    def window(self) -> int:
        """How many tokens to read at once when scoring long texts: as many as in training."""
        return self.context or self._table() or 512

    def _table(self) -> int | None:
        """Rows of the learned position table, if there is one: the most tokens the model can read."""
        return self.model.config.positions.max_length

    def _limit(self, wanted: int, prompt: int) -> int:
        """The most tokens to write after a prompt of this length; the last one written is never read."""
        room = self._table()
        if room is not None and prompt > room:
            raise InputError(f"the prompt has {prompt} tokens; this model's learned positions end at {room}")
        return wanted if room is None else max(1, min(wanted, room - prompt + 1))

    def _steps(self, source: Tensor | None = None, source_real: Tensor | None = None) -> Steps:
        if self._fast is None:  # on first use: a model that is only scored needs no second copy of its weights
            self._fast = FastDecoding(cast(EncoderDecoder | DecoderOnly, self.model), self.precision)
        return self._fast.steps(source, source_real)

    def _threads(self) -> AbstractContextManager[None]:
        return using_threads(self.threads, self.device)
