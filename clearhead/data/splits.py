"""From the `[data]` section of a recipe to datasets: training, validation, test."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from clearhead.data.batch import Dataset, Skipped
from clearhead.data.dates import date_characters, divide_dates, divide_forms, write_dates
from clearhead.data.files import expand
from clearhead.data.forms import LOCALES
from clearhead.data.labelled import Labelled, label_names, mark_texts, read_labelled
from clearhead.data.languages import write_languages
from clearhead.data.masked import MaskedTokens
from clearhead.data.pairs import Pairs
from clearhead.data.parallel import Parallel, hold_out, read_columns, read_files
from clearhead.data.sequences import Counting, make_examples, make_lists
from clearhead.data.settings import DataSettings, TokenizerSettings
from clearhead.data.text import Text, read_parts
from clearhead.data.vocabulary import get_tokenizer
from clearhead.data.windows import NextTokens
from clearhead.errors import InputError
from clearhead.tokenizer import SPECIAL, Integers, Tokenizer
from clearhead.tokenizer.base import MASK


@dataclass(frozen=True)
class Splits:
    """The parts of the data. `extra` holds further tests by name, for example unseen forms of dates."""

    train: Dataset
    validation: Dataset
    test: Dataset | None = None
    extra: dict[str, Dataset] = field(default_factory=dict)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.train.tokenizer

    @property
    def source_tokenizer(self) -> Tokenizer | None:
        """That of the sources, where it is another."""
        return self.train.source_tokenizer if isinstance(self.train, Pairs) else None

    def skipped(self) -> Iterator[tuple[str, Skipped]]:
        """What could not be used, with the name of the part it is missing from."""
        for name, part in {"train": self.train, "validation": self.validation, "test": self.test}.items():
            for skipped in part.skipped if part else ():
                yield name, skipped


def build(
    settings: DataSettings,
    tokenizer: Tokenizer | None = None,
    asked: TokenizerSettings | None = None,
    source_tokenizer: Tokenizer | None = None,  # of parallel text whose source has a vocabulary of its own
) -> Splits:
    """Read or make the data. Without a `tokenizer`, the one that is `asked` for is learned from the training part."""
    asked = asked or TokenizerSettings()
    kind = settings.kind()
    for name in ("dropout", "apart", "source_path"):
        if getattr(asked, name) and kind not in ("source", "tsv"):
            raise InputError(f"tokenizer.{name} is for parallel text; leave it out")
    if kind == "lists":
        return build_lists(settings, tokenizer, asked)
    if kind == "dates":
        return build_dates(settings, tokenizer, asked)
    if kind == "text":
        return build_text(settings, tokenizer, asked)
    if kind in ("labelled", "languages"):
        return build_labelled(settings, tokenizer, asked)
    return build_parallel(settings, tokenizer, asked, source_tokenizer)


def build_labelled(settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings) -> Splits:
    """Texts with labels, from a file or, as the task `languages`, dates in many languages."""
    if settings.labelled is not None:
        train, validation, test = read_labelled(settings)
        longest, usual = settings.max_length, "bpe"
    else:
        counts, locales = (settings.examples, settings.held_out, settings.held_out), settings.locales or LOCALES
        train, validation, test = (
            write_languages(count, dates, locales, stream)
            for stream, (count, dates) in enumerate(zip(counts, divide_dates(), strict=True))
        )
        longest, usual = 256, "characters"
    labels = label_names(settings, train, (validation, test))
    if tokenizer is None:
        tokenizer = get_tokenizer(asked, train.texts(), usual)
    mark_texts(tokenizer)
    parts = [Labelled(part, tokenizer, labels, longest) for part in (train, validation, test) if part]
    if len({part.pairs for part in parts}) > 1:
        raise InputError("some parts of the data have a second text and others have none")
    return Splits(parts[0], parts[1], parts[2] if test else None)


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


def build_parallel(
    settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings, own: Tokenizer | None = None
) -> Splits:
    """Parallel text; where no validation file is named, every so-manieth pair is kept from training."""
    train, validation = read_parallel(settings, ""), read_parallel(settings, "validation_")
    test = read_parallel(settings, "test_")
    assert train is not None  # the settings have seen to that
    if validation is None:
        for_training, for_validation = hold_out(len(train.texts), settings.validation_share)
        train, validation = train.part(for_training, True), train.part(for_validation, False)
    if tokenizer is None and asked.apart:
        tokenizer = get_tokenizer(asked, (pair.target for pair in train.texts), "bpe")
        source = replace(asked, path=asked.source_path, source_path=None, apart=False)
        own = get_tokenizer(source, (pair.source for pair in train.texts), "bpe")
    elif tokenizer is None:
        tokenizer = get_tokenizer(asked, (text for pair in train.texts for text in pair), "bpe")

    def pairs(part: Parallel, dropout: float = 0.0) -> Pairs:
        return Pairs(part.texts, tokenizer, settings.max_length, part.lines, part.files, part.skipped, dropout, own)

    return Splits(pairs(train, asked.dropout), pairs(validation), pairs(test) if test else None)


def build_text(settings: DataSettings, tokenizer: Tokenizer | None, asked: TokenizerSettings) -> Splits:
    """Plain text, for a language model or, as the task `masked`, for an encoder."""
    train, validation, test = read_parts(settings)
    masked = settings.task == "masked"
    if tokenizer is None:
        special = (*SPECIAL, MASK) if masked else SPECIAL
        tokenizer = get_tokenizer(asked, train.documents, "bpe", special)

    def windows(text: Text, shifted: bool) -> Dataset:
        return (MaskedTokens if masked else NextTokens)(text, tokenizer, settings.context, shifted)

    return Splits(windows(train, True), windows(validation, False), windows(test, False) if test else None)


def read_parallel(settings: DataSettings, split: str) -> Parallel | None:
    """One part of parallel text, if the settings name it."""
    strict = split != ""
    source, target, tsv = (getattr(settings, split + key) for key in ("source", "target", "tsv"))
    if tsv:
        return read_columns(expand(tsv), strict)
    return read_files(expand(source), expand(target), strict) if source else None


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
    pairs = [Pairs(part, tokenizer, files=f"{settings.task} task") for part in (train, validation, test)]
    return Splits(pairs[0], pairs[1], pairs[2])
