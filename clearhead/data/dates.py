"""The default task: read a date as people write it, in dozens of languages, and write it as ISO 8601.

"Samstag, 3. März 2029", "3 mars 2029" and "2029年3月3日" all become 2029-03-03. The task needs what translation needs
(words in many languages, another order on each side) but is small enough for two minutes on two cores, and because
it is known which characters the year, the month and the day come from, one can check where cross-attention looks.
"""

import datetime
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from clearhead.data.batch import Example, generator
from clearhead.data.forms import Form, WrittenDate, all_forms, month_readings
from clearhead.data.pairs import Pairs
from clearhead.errors import InputError
from clearhead.tokenizer import Characters, Tokenizer

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
CASES = ("as is", "as is", "lower", "upper")  # half of the time as the locale data has it
UNSEEN_SHARE = 0.1


class Forms(NamedTuple):
    """The ways of writing dates, divided: those of `unseen` are kept for a test of their own."""

    seen: list[Form]
    unseen: list[Form]


def divide_forms(locales: Sequence[str]) -> Forms:
    """Up to a tenth of the combinations of locale and form is kept from training: such as are unseen and fair, and not
    one of the most usual of a locale (full, long, short), which a trained model should have met.

    Unseen: nothing that the form writes could have been written by a form of training, in any locale. Fair: all its
    words, the months and the weekdays, occur in other forms of its own locale.
    """
    forms = all_forms(locales)
    if not forms:
        raise InputError(f"data.locales = {list(locales)} have no form that determines a date")
    readings = [[reading for _, reading in month_readings(form)] for form in forms]
    words = [
        [(form.locale, piece.table) for piece in form.pieces if piece.part in ("month", "weekday")] for form in forms
    ]
    reading_uses = Counter(chain.from_iterable(readings))
    word_uses = Counter(chain.from_iterable(words))
    unseen: set[int] = set()
    for number in generator(1).permutation(len(forms)).tolist():
        is_unseen = all(reading_uses[reading] == 1 for reading in readings[number])
        is_fair = all(word_uses[table] > 1 for table in words[number])
        is_usual = forms[number].name in ("full", "long", "short")
        if is_unseen and is_fair and not is_usual and len(unseen) < UNSEEN_SHARE * len(forms):
            unseen.add(number)
            word_uses.subtract(words[number])
    return Forms(
        [form for number, form in enumerate(forms) if number not in unseen],
        [form for number, form in enumerate(forms) if number in unseen],
    )


def divide_dates() -> tuple[list[datetime.date], list[datetime.date], list[datetime.date]]:
    """All dates of two centuries in three disjoint parts: eight tenths, one, and one."""
    days = generator(2).permutation((LAST - FIRST).days + 1)
    tenth = len(days) // 10
    test, validation, train = (
        [FIRST + datetime.timedelta(int(day)) for day in part]
        for part in (days[:tenth], days[tenth : 2 * tenth], days[2 * tenth :])
    )
    return train, validation, test


def date_characters(locales: Sequence[str]) -> Characters:
    """One token for each character that can occur, in any case, and for the digits and dashes of the answer."""
    words = [word for form in all_forms(locales) for piece in form.pieces for word in piece.table]
    return Characters.train(["0123456789-", *words, *map(str.lower, words), *map(str.upper, words)])


class Dates(Pairs):
    """Pairs of a date as written and as ISO 8601, that know from which characters each part of the date comes."""

    written: Sequence[WrittenDate]

    def parts(self, index: int) -> dict[str, tuple[int, int]]:
        """For "year", "month" and "day" the first source character it comes from, and the one after the last."""
        return self.written[index].parts


def write_dates(
    count: int, dates: Sequence[datetime.date], forms: Sequence[Form], tokenizer: Tokenizer, stream: int
) -> Dates:
    """`count` random dates, each in a random locale, then form, then case, with or without its commas."""
    random = generator(3, stream)
    by_locale: dict[str, list[Form]] = {}
    for form in forms:
        by_locale.setdefault(form.locale, []).append(form)
    choices = list(by_locale.values())
    chosen, written = [], []
    # five large numbers for each; what is left of one after division by the number of options picks an option
    for when, where, how, case, commas in random.integers(0, 1 << 40, size=(count, 5)).tolist():
        date, options = dates[when % len(dates)], choices[where % len(choices)]
        form = options[how % len(options)]
        chosen.append(date)
        written.append(form.write(date, CASES[case % len(CASES)], commas % 4 > 0))
    texts = [Example(source.text, date.isoformat()) for source, date in zip(written, chosen, strict=True)]
    made: Dates = Dates.of(texts, tokenizer, "dates task")
    made.written = written
    return made
