"""How people write dates: the patterns of Unicode's locale data, which Babel carries, taken apart.

A pattern such as "EEEE, d. MMMM y" becomes a row of pieces: literal text, and tables from which the date picks a word.
Written out piece by piece, every character is known to come from the year, the month, the day or none of them. Only
patterns that determine the date are used: a four-digit year, and a month in words, or else numbers in the order year,
month, day. 3/4/2029 is left out, because it is two different days on the two sides of the Atlantic.
"""

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from babel import Locale, UnknownLocaleError
from babel.dates import tokenize_pattern

from clearhead.errors import InputError

LOCALES = (
    *("af", "ar", "az", "be", "bg", "bn", "ca", "cs", "cy", "da", "de", "de_AT", "el", "en", "en_GB", "es", "et", "eu"),
    *("fa", "fi", "fr", "ga", "gl", "he", "hi", "hu", "hy", "id", "is", "it", "ja", "ko", "lt", "lv", "mk", "nb"),
    *("nl", "pl", "pt", "ro", "ru", "sk", "sl", "sq", "sr_Latn", "sv", "sw", "th", "tr", "uk", "vi", "zh"),
)

COMMAS = ",،、"
MONTH_WIDTHS = {3: "abbreviated", 4: "wide"}
DAY_WIDTHS = {1: "abbreviated", 2: "abbreviated", 3: "abbreviated", 4: "wide"}


class Piece(NamedTuple):
    """A part of a pattern. The table holds the words to choose from; a year is written out, literal text is alone."""

    part: str  # "year", "month", "day", "weekday", or "" for literal text
    table: tuple[str, ...]


class WrittenDate(NamedTuple):
    """A date as text, and from which characters (start, end) its year, month and day can be read."""

    text: str
    parts: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Form:
    """One way of writing dates in one locale."""

    locale: str
    name: str  # the name in the locale data: full, long, medium, short, or a skeleton like yMMMd
    pieces: tuple[Piece, ...]

    def write(self, date: datetime.date, case: str = "as is", commas: bool = True) -> WrittenDate:
        """The date in this form; `case` is "as is", "lower" or "upper"."""
        row = {"month": date.month - 1, "day": date.day - 1, "weekday": date.weekday(), "": 0}
        text, parts = "", {}
        for part, table in self.pieces:
            # piece by piece, because a change of case can change the length: ß becomes SS
            word = spell(str(date.year) if part == "year" else table[row[part]], part, case, commas)
            if part in ("year", "month", "day"):
                parts[part] = (len(text), len(text) + len(word))
            text += word
        return WrittenDate(text, parts)

    def has(self, part: str) -> bool:
        return any(piece.part == part for piece in self.pieces)


def spell(word: str, part: str, case: str, commas: bool) -> str:
    """One piece of a date in the case that was asked for, and without its commas if so."""
    if not commas and not part and word.strip(COMMAS):  # a comma alone stays: it holds two words apart
        word = word.translate(dict.fromkeys(map(ord, COMMAS)))
    return word if case == "as is" else word.lower() if case == "lower" else word.upper()


def all_forms(locales: Sequence[str] = LOCALES) -> list[Form]:
    """Every form of these locales that determines the date, with and without the weekday; none is there twice, and
    none that could be read as another date in another language ("3 listopada" is in October in Zagreb and in November
    in Warsaw)."""
    found: dict[tuple[Piece, ...], Form] = {}
    for name in locales:
        forms = list(locale_forms(name))
        for form in [*forms, *filter(None, map(without_weekday, forms))]:
            found.setdefault(form.pieces, form)
    forms = list(found.values())
    readings: dict[str, set[int]] = {}
    for form in forms:
        for month, reading in month_readings(form):
            readings.setdefault(reading, set()).add(month)
    return [form for form in forms if all(len(readings[reading]) == 1 for _, reading in month_readings(form))]


def locale_forms(name: str) -> Iterator[Form]:
    """The usable patterns of one locale: its four date formats, then its skeletons."""
    try:
        locale = Locale.parse(name)
    except (UnknownLocaleError, ValueError):
        raise InputError(f"data.locales: {name!r} is not a locale that Babel knows, such as 'en' or 'pt_BR'") from None
    patterns = {kind: locale.date_formats[kind].pattern for kind in ("full", "long", "medium", "short")}
    patterns |= {kind: locale.datetime_skeletons[kind].pattern for kind in sorted(locale.datetime_skeletons)}
    for kind, pattern in patterns.items():
        pieces = take_apart(pattern, locale)
        if pieces is not None and determines(pieces):
            yield Form(name, kind, pieces)


def take_apart(pattern: str, locale: Locale) -> tuple[Piece, ...] | None:
    """A pattern as pieces; None if it holds anything but a year, a month, a day of the month and a weekday."""
    pieces = []
    for kind, value in tokenize_pattern(pattern):
        if kind == "chars":
            pieces.append(Piece("", (re.sub(r"\s", " ", str(value)),)))  # people type plain spaces, not U+202F
            continue
        letter, width = str(value[0]), int(value[1])
        if letter == "y" and width in (1, 4):
            pieces.append(Piece("year", ()))
        elif letter in "ML" and width <= 2:
            pieces.append(Piece("month", numbers(12, width)))
        elif letter in "ML" and width in MONTH_WIDTHS:
            names = locale.months["format" if letter == "M" else "stand-alone"][MONTH_WIDTHS[width]]
            pieces.append(Piece("month", tuple(names[month] for month in range(1, 13))))
        elif letter == "d" and width <= 2:
            pieces.append(Piece("day", numbers(31, width)))
        elif letter in "Ec" and width in DAY_WIDTHS:
            names = locale.days["format" if letter == "E" else "stand-alone"][DAY_WIDTHS[width]]
            pieces.append(Piece("weekday", tuple(names[day] for day in range(7))))
        else:
            return None
    return tuple(pieces)


def numbers(last: int, width: int) -> tuple[str, ...]:
    return tuple(f"{number:0{width}}" for number in range(1, last + 1))


def determines(pieces: Sequence[Piece]) -> bool:
    """Whether the date can be read from it, and in one way only."""
    order = [piece.part for piece in pieces if piece.part in ("year", "month", "day")]
    if sorted(order) != ["day", "month", "year"]:
        return False
    months = next(piece.table for piece in pieces if piece.part == "month")
    in_words = all(re.search(r"[^\W\d_]", month) for month in months)
    return order == ["year", "month", "day"] or (in_words and len({month.casefold() for month in months}) == 12)


def without_weekday(form: Form) -> Form | None:
    """The form as people write it who leave the weekday out; None where that needs knowledge of the language."""
    pieces = list(form.pieces)
    if not form.has("weekday"):
        return None
    if pieces[0].part == "weekday" and pieces[1].part == "":
        rest = pieces[1].table[0].lstrip(COMMAS + " ")
        pieces[:2] = [Piece("", (rest,))] if rest else []
    elif pieces[-1].part == "weekday" and pieces[-2].part == "":
        rest = pieces[-2].table[0].rstrip(COMMAS + " ")
        pieces[-2:] = [Piece("", (rest,))] if rest else []
    elif pieces[-1].part == "weekday":
        pieces.pop()
    else:
        return None
    return Form(form.locale, f"{form.name} without weekday", tuple(pieces))


def month_readings(form: Form) -> Iterator[tuple[int, str]]:
    """For each month the form with everything else struck out, as a careless reader sees it."""
    for month in range(12):
        text = "".join(
            table[month] if part == "month" else table[0] if not part else f"<{part}>" for part, table in form.pieces
        )
        yield month, " ".join(re.sub(f"[{COMMAS}.]", " ", text.casefold()).split())
