"""From the `[data]` section of a recipe to datasets: training, validation, test."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearhead.data.batch import Dataset, Skipped
from clearhead.data.columns import Note, Origin, origin_of
from clearhead.data.dates import date_characters, divide_dates, divide_forms, write_dates
from clearhead.data.forms import LOCALES
from clearhead.data.labelled import Labelled, LabelledEncoder, check_labels, label_names, mark_texts
from clearhead.data.languages import write_languages
from clearhead.data.masked import MaskedTokens
from clearhead.data.pairs import PairEncoder, Pairs
from clearhead.data.prepare import Corpus, LabelTable, Report, corpora, prepared, silent
from clearhead.data.sequences import Counting, make_examples, make_lists
from clearhead.data.settings import DataSettings, TokenizerSettings
from clearhead.data.store import Store
from clearhead.data.vocabulary import get_tokenizer, learned
from clearhead.data.windows import NextTokens, TextEncoder, Windows
from clearhead.errors import InputError
from clearhead.tokenizer import SPECIAL, Integers, Tokenizer
from clearhead.tokenizer.base import MASK


@dataclass(frozen=True)
class Splits:
    """The parts of the data. `more` holds further validation sets by name, `extra` further tests, for example unseen
    forms of dates."""

    train: Dataset
    validation: Dataset
    test: Dataset | None = None
    extra: dict[str, Dataset] = field(default_factory=dict)
    more: dict[str, Dataset] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.train.tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """That of the sources, where it is another."""
        return self.train.source_tokenizer if isinstance(self.train, Pairs) else None

    def skipped(self) -> Iterator[tuple[str, Skipped]]:
        """What could not be used, with the name of the part it is missing from."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test, **self.more, **self.extra}
        for name, part in parts.items():
            for skipped in part.skipped if part else ():
                yield name, skipped


def build(
    settings: DataSettings,
    tokenizer: Tokenizer | None = None,
    asked: TokenizerSettings | None = None,
    source_tokenizer: Tokenizer | None = None,  # of parallel text whose source has a vocabulary of its own
    report: Report = silent,
    verify: bool = False,
) -> Splits:
    """Read or make the data. Without a `tokenizer`, the one that is `asked` for is learned from the training part.
    What is read from files is a token store, found or made now; `verify` reads all of it again."""
    asked = asked or TokenizerSettings()
    kind = settings.kind()
    for name in ("dropout", "apart", "source_path"):
        if getattr(asked, name) and kind not in ("source", "tsv"):
            raise InputError(f"tokenizer.{name} is for parallel text; leave it out")
    if kind == "lists":
        return build_lists(settings, tokenizer, asked)
    if kind == "dates":
        return build_dates(settings, tokenizer, asked)
    if kind == "languages":
        return build_languages(settings, tokenizer, asked)
    (corpus,) = corpora(settings, "")
    for split in ("validation_", "test_"):
        corpora(settings, split)  # what is not there is missed before anything is prepared
    tokenizer, own = tokenizers_for(corpus, tokenizer, asked, source_tokenizer)
    stores = FromFiles(settings, tokenizer, own, asked.dropout, report, verify)
    train = stores.dataset(corpus, "train")
    held_out = [stores.dataset(corpus, "validation")] if corpus.share is not None else stores.sets("validation_")
    tests = stores.sets("test_")
    stores.check()
    return Splits(train, held_out[0], tests[0] if tests else None, named(tests[1:]), named(held_out[1:]))


def held_out(
    settings: DataSettings,
    tokenizer: Tokenizer,
    source_tokenizer: Tokenizer | None = None,
    recorded: Mapping[str, str] | None = None,  # sums of files by path, as a run wrote them down: some may be gone
) -> dict[str, Dataset]:
    """What a run is evaluated on: its test sets, or where there are none its validation sets. Training data are not
    read, if validation was not held out from them, and not prepared again, if they were."""
    if settings.kind() in ("lists", "dates", "languages"):
        made = build(settings, tokenizer)
        return {**({"test": made.test} if made.test else {"validation": made.validation}), **made.extra}
    stores = FromFiles(settings, tokenizer, source_tokenizer, recorded=dict(recorded or {}))
    for split in ("test_", "validation_"):
        if found := stores.sets(split):
            return {split.removesuffix("_"): found[0], **named(found[1:])}
    (corpus,) = corpora(settings, "", stores.recorded)
    return {"validation": stores.dataset(corpus, "validation")}


def named(sets: Sequence[Dataset]) -> dict[str, Dataset]:
    """Further sets by the names of their files."""
    found: dict[str, Dataset] = {}
    for data in sets:
        origin = data.origin  # type: ignore[attr-defined]
        name = Path(origin.files.partition(" and ")[0]).name
        found[name if name not in found else origin.files] = data
    return found


def tokenizers_for(
    corpus: Corpus, tokenizer: Tokenizer | None, asked: TokenizerSettings, own: Tokenizer | None
) -> tuple[Tokenizer, Tokenizer | None]:
    """The tokenizer of a corpus, and that of its sources, where it is another; learned, where none is given."""
    if tokenizer is None and asked.apart:
        tokenizer = learned(asked, corpus, 1)
        own = learned(replace(asked, path=asked.source_path, source_path=None, apart=False), corpus, 0)
    elif tokenizer is None:
        special = (*SPECIAL, MASK) if corpus.settings.task == "masked" else SPECIAL
        tokenizer = learned(asked, corpus, special=special)
    if corpus.kind == "labelled":
        mark_texts(tokenizer)
    return tokenizer, own


def description_of(tokenizer: Tokenizer | None) -> str:
    """A sum of all that the ids of a text depend on."""
    if tokenizer is None:
        return ""
    content = repr((tokenizer.to_json(), tokenizer.marks, tokenizer.around, tokenizer.forms))
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class FromFiles:
    """Datasets of token stores, all with the same tokenizers."""

    settings: DataSettings
    tokenizer: Tokenizer
    own: Tokenizer | None
    dropout: float = 0.0
    report: Report = silent
    verify: bool = False
    recorded: dict[str, str] = field(default_factory=dict)
    stores: dict[Corpus, Store] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)

    def sets(self, split: str) -> list[Dataset]:
        """The validation or test sets that the settings name."""
        part = split.removesuffix("_")
        return [self.dataset(corpus, part) for corpus in corpora(self.settings, split, self.recorded)]

    def store(self, corpus: Corpus) -> Store:
        if corpus not in self.stores:
            encode, made_of = self.encoder(corpus)
            sums = [description_of(self.tokenizer), description_of(self.own)]
            made = prepared(corpus, encode, [sums, made_of], self.report, self.recorded, self.verify)
            self.stores[corpus] = made
        return self.stores[corpus]

    def encoder(self, corpus: Corpus) -> tuple[Any, Any]:
        """What makes ids of rows, and what they depend on besides the tokenizers."""
        settings = self.settings
        if corpus.kind == "text":
            apart, next_tokens = settings.documents != "none", settings.task != "masked"
            return TextEncoder(self.tokenizer, apart, next_tokens, settings.min_length), next_tokens
        if corpus.kind == "labelled":
            return LabelledEncoder(self.tokenizer, settings.max_length, settings.min_length), settings.max_length
        limits = settings.max_length, settings.min_length, settings.max_ratio
        return PairEncoder(self.tokenizer, self.own, *limits), settings.max_length

    def dataset(self, corpus: Corpus, part: str) -> Dataset:
        store, settings = self.store(corpus), self.settings
        about, columns = store.part(part), store.columns(part)
        weights = settings.weights if part == "train" else None
        skipped = [Skipped(*one) for one in about["skipped"]]
        origin = origin_of(corpus.files, corpus.names, Note(about), skipped, weights)
        self.check_kept(corpus, origin, about)
        if corpus.kind == "text":
            apart, shifted = settings.documents != "none", part == "train"
            windows: type[Windows] = MaskedTokens if settings.task == "masked" else NextTokens
            return windows(columns, origin, self.tokenizer, apart, settings.context, shifted)  # type: ignore[return-value]
        if corpus.kind == "labelled":
            if not self.labels:  # the training part comes first, or else they are given
                known = part != "train" and settings.labels
                self.labels = list(known or label_names(settings.labels, corpus.files, about["labels"]))
            check_labels(self.labels, corpus.files, about["labels"])
            numbers = {
                number: self.labels.index(label) for label, number in about["numbers"].items() if label in self.labels
            }
            return Labelled(
                columns, origin, self.tokenizer, numbers, about["pairs"], self.labels, settings.max_length
            )
        dropout = self.dropout if part == "train" else 0.0
        return Pairs(columns, origin, self.tokenizer, self.own, settings.max_length, dropout)

    def check_kept(self, corpus: Corpus, origin: Origin, about: Mapping[str, Any]) -> None:
        """Refuse data of which nothing is left, and a corpus of a mixture of which nothing is."""
        limit = f"data.max_length = {self.settings.max_length} tokens"
        if not sum(origin.sizes):
            shortest = f"; the shortest has {about['shortest']} tokens" if about["shortest"] else ""
            what = "pair" if corpus.kind in ("source", "tsv") else "example"
            raise InputError(f"{corpus.files}: no {what} has at most {limit}{shortest}")
        if origin.weights is not None and 0 in origin.sizes:
            raise InputError(f"{origin.names[origin.sizes.index(0)]}: nothing is left of it to be mixed")

    def check(self) -> None:
        """Of labelled text, every part has as many texts in a row."""
        found = [store.part(part) for store in self.stores.values() for part in store.about["parts"]]
        if len({about.get("pairs") for about in found}) > 1:
            raise InputError("some parts of the data have a second text and others have none")


def build_languages(settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings) -> Splits:
    """Dates in many languages, with the language as the label."""
    counts, locales = (settings.examples, settings.held_out, settings.held_out), settings.locales or LOCALES
    parts = [
        write_languages(count, dates, locales, stream)
        for stream, (count, dates) in enumerate(zip(counts, divide_dates(), strict=True))
    ]
    files = "languages task"
    tables = [LabelTable() for _ in parts]
    for table, rows in zip(tables, parts, strict=True):
        for row in rows:
            table.note("", row)
    labels = label_names(settings.labels, files, tables[0].counts[""])
    for table in tables:
        check_labels(labels, files, table.counts[""])
    if tokenizer is None:
        tokenizer = get_tokenizer(asked, (row.text for row in parts[0]), "characters")
    mark_texts(tokenizer)
    made = [Labelled.of(rows, tokenizer, labels, 256, files) for rows in parts]
    return Splits(made[0], made[1], made[2])


def build_dates(settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings) -> Splits:
    """Dates; the extra test has combinations of locale and form that training has not."""
    locales = settings.locales or LOCALES
    if tokenizer is None:
        if asked.kind not in (None, "characters") or asked.path:
            raise InputError("tokenizer.kind must be 'characters' for task = 'dates', and is learned from it")
        tokenizer = date_characters(locales)
    train, validation, test = divide_dates()
    forms = divide_forms(locales)
    few = settings.held_out
    unseen = {"unseen forms": write_dates(few, test, forms.unseen, tokenizer, 3)} if forms.unseen else {}
    return Splits(
        write_dates(settings.examples, train, forms.seen, tokenizer, 0),
        write_dates(few, validation, forms.seen, tokenizer, 1),
        write_dates(few, test, forms.seen, tokenizer, 2),
        dict(unseen),
    )


def build_lists(settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings) -> Splits:
    """copy, reverse, sort and count: three disjoint sets of lists."""
    if tokenizer is None:
        if asked.kind not in (None, "integers") or asked.path:
            raise InputError(f"tokenizer.kind must be 'integers' for task = {settings.task!r}")
        tokenizer = Integers(settings.symbols)
    assert settings.task is not None
    lists = make_lists(settings.examples + 2 * settings.held_out, settings.symbols, settings.shortest, settings.longest)
    texts = make_examples(settings.task, lists)
    test, validation, train = (
        texts[: settings.held_out],
        texts[settings.held_out : 2 * settings.held_out],
        texts[2 * settings.held_out :],
    )
    if settings.task == "count":
        counting = [Counting(part, tokenizer, settings.longest) for part in (train, validation, test)]
        return Splits(counting[0], counting[1], counting[2])
    pairs = [Pairs.of(part, tokenizer, f"{settings.task} task") for part in (train, validation, test)]
    return Splits(pairs[0], pairs[1], pairs[2])
