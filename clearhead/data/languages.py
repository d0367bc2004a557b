"""Which language is this date written in? The task that shows classification, made of Babel's locale data.

A language, one of its ways of writing a date, a date and a case are drawn at random. Several languages write some dates
alike ("2029-03-03", "3. mars 2029"), so nobody can always be right; how often the best possible reader is, who answers
with the likeliest language of each text, can be counted exactly: `best_possible`.
"""

import datetime
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import product

from clearhead.data.batch import generator
from clearhead.data.dates import CASES, FIRST, LAST
from clearhead.data.forms import Form, locale_forms, spell, without_weekday
from clearhead.data.labelled import Row

Day = tuple[int, int, int | None]  # month, day, and the weekday from 0 where it is written

COMMAS = (True, True, True, False)  # a quarter of the texts lacks them


def language_forms(locales: Sequence[str]) -> dict[str, list[Form]]:
    """The forms of each language, those of its regions and scripts together; none is there twice."""
    found: dict[str, dict[object, Form]] = {}
    for name in locales:
        forms = list(locale_forms(name))
        for form in [*forms, *filter(None, map(without_weekday, forms))]:
            found.setdefault(name.split("_")[0], {}).setdefault(form.pieces, form)
    return {language: list(forms.values()) for language, forms in sorted(found.items()) if forms}


def write_languages(count: int, dates: Sequence[datetime.date], locales: Sequence[str], stream: int) -> list[Row]:
    """`count` dates as somebody may write them, each with its language."""
    forms = language_forms(locales)
    languages = list(forms)
    rows = []
    draws = generator(4, stream).integers(0, 1 << 40, size=(count, 5)).tolist()
    for number, (when, where, how, case, commas) in enumerate(draws, 1):
        language = languages[where % len(languages)]
        form = forms[language][how % len(forms[language])]
        made = form.write(dates[when % len(dates)], CASES[case % len(CASES)], COMMAS[commas % len(COMMAS)])
        rows.append(Row(number, made.text, None, language))
    return rows


def best_possible(locales: Sequence[str]) -> float:
    """The share of right answers of a reader who knows the generator: for every text that it can write, the
    probability of the likeliest language. Counted over all dates of all years."""
    forms = language_forms(locales)
    calendars = years_by_day()
    ways = Counter(product(CASES, COMMAS))
    # text with its year left open -> which days (month, day, weekday or None) it can mean -> language -> how often
    texts: defaultdict[str, dict[Day, defaultdict[str, float]]] = defaultdict(dict)
    for language, own in forms.items():
        for form in own:
            days = [day for day in calendars if (day[2] is None) != form.has("weekday")]
            for (case, commas), times in ways.items():
                for day, text in zip(days, written(form, days, case, commas), strict=True):
                    texts[text].setdefault(day, defaultdict(float))[language] += times / len(own)
    total = 0.0
    for meanings in texts.values():
        if len(meanings) == 1:
            ((day, counts),) = meanings.items()
            total += len(calendars[day]) * max(counts.values())
            continue
        for year in frozenset().union(*(calendars[day] for day in meanings)):  # alike in some years only
            possible = [counts for day, counts in meanings.items() if year in calendars[day]]
            total += max(sum(counts.get(language, 0.0) for counts in possible) for language in forms)
    return total / (((LAST - FIRST).days + 1) * len(forms) * sum(ways.values()))


def years_by_day() -> dict[Day, frozenset[int]]:
    """In which years a day of a month exists, and in which it is this day of the week."""
    found: defaultdict[Day, set[int]] = defaultdict(set)
    for number in range((LAST - FIRST).days + 1):
        date = FIRST + datetime.timedelta(number)
        for weekday in (None, date.weekday()):
            found[date.month, date.day, weekday].add(date.year)
    return {day: frozenset(years) for day, years in found.items()}


def written(form: Form, days: Sequence[Day], case: str, commas: bool) -> Iterator[str]:
    """What `form.write` writes on each of these days, with the year left open."""
    columns = []
    for part, table in form.pieces:
        words = [spell(word, part, case, commas) for word in table or ("YYYY",)]
        place = {"month": 0, "day": 1, "weekday": 2}.get(part)
        columns.append((words, place))
    for day in days:
        yield "".join(words[0 if place is None else (day[place] or 0) - (place < 2)] for words, place in columns)
