"""Dates: the same text as Babel writes, read in one way only, disjoint parts, and parts found where they stand."""

import datetime
import re

import pytest
from babel import Locale
from babel.dates import format_date, format_skeleton
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data import DataSettings, Splits, build
from clearhead.data.dates import Dates, divide_dates, divide_forms
from clearhead.data.forms import (
    LOCALES,
    Form,
    Piece,
    all_forms,
    determines,
    locale_forms,
    take_apart,
    without_weekday,
)  # fmt: skip
from clearhead.errors import InputError

FORMS = all_forms(LOCALES)
DATES = st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 12, 31))


@pytest.fixture(scope="module")
def splits() -> Splits:
    return build(DataSettings(task="dates", examples=4000, held_out=500))


@given(form=st.sampled_from([form for form in FORMS if "without" not in form.name]), date=DATES)
def test_a_form_writes_what_babel_writes(form: Form, date: datetime.date) -> None:
    if form.name in ("full", "long", "medium", "short"):
        wanted = format_date(date, form.name, form.locale)
    else:
        wanted = format_skeleton(form.name, date, locale=form.locale)
    assert form.write(date).text == re.sub(r"\s", " ", wanted)


def test_there_are_dozens_of_locales_and_many_forms() -> None:
    assert len({form.locale for form in FORMS}) == len(LOCALES) >= 48
    assert len(FORMS) >= 200
    texts = {form.write(datetime.date(2029, 3, 3)).text for form in FORMS}
    assert {"Samstag, 3. März 2029", "3. März 2029", "3 mars 2029", "2029年3月3日", "March 3, 2029"} <= texts


@given(form=st.sampled_from(FORMS), date=DATES, case=st.sampled_from(["as is", "lower", "upper"]), commas=st.booleans())
def test_parts_stand_where_they_are_said_to(form: Form, date: datetime.date, case: str, commas: bool) -> None:
    text, parts = form.write(date, case, commas)
    year, month, day = (text[slice(*parts[part])] for part in ("year", "month", "day"))
    assert year == str(date.year)
    assert int(day) == date.day
    plain = form.write(date)
    word = plain.text[slice(*plain.parts["month"])]
    assert month == {"as is": word, "lower": word.lower(), "upper": word.upper()}[case]
    assert int(month) == date.month if month.isdecimal() else month.casefold() == word.casefold()
    for part in ("year", "month", "day"):
        assert sum(start < parts[part][1] and parts[part][0] < end for start, end in parts.values()) == 1, "disjoint"


def test_commas_go_and_words_stay_apart() -> None:
    date = datetime.date(2029, 3, 3)
    written = {form.name: form.write(date, commas=False).text for form in FORMS if form.locale == "en"}
    assert written["full"] == "Saturday March 3 2029"
    form = Form("xx", "x", (Piece("year", ()), Piece("", (",",)), Piece("month", ("Jan",) * 12)))
    assert form.write(date, commas=False).text == "2029,Jan"


def test_no_text_has_two_readings() -> None:
    """Over every form, case and a grid of dates: one text is one date."""
    readings: dict[str, datetime.date] = {}
    for date in [datetime.date(2029, month, day) for month in range(1, 13) for day in (1, 3, 10, 12, 28)]:
        for form in FORMS:
            for case in ("as is", "lower", "upper"):
                for commas in (True, False):
                    text = form.write(date, case, commas).text
                    assert readings.setdefault(text, date) == date, (form.locale, form.name, text)


def test_languages_that_contradict_each_other_are_left_out() -> None:
    """ "3 listopada 2029" is a day in October in Croatian, in November in Polish."""
    alone = [form for form in all_forms(["pl"]) if form.name == "long"]
    both = [form for form in all_forms(["pl", "hr"]) if form.name == "long"]
    assert len(alone) == 1
    assert not both


@pytest.mark.parametrize("pattern", ["dMy", "Mdy", "ydM"])
def test_numbers_in_another_order_do_not_determine_a_date(pattern: str) -> None:
    table = tuple(map(str, range(1, 32)))
    pieces = {"d": Piece("day", table), "M": Piece("month", table[:12]), "y": Piece("year", ())}
    assert determines([pieces[letter] for letter in "yMd"])
    assert not determines([pieces[letter] for letter in pattern])


@pytest.mark.parametrize(
    ("pattern", "wanted"), [("E", "Mon"), ("EE", "Mon"), ("EEE", "Mon"), ("EEEE", "Monday"), ("cccc", "Monday")]
)
def test_weekdays_are_as_wide_as_the_pattern_says(pattern: str, wanted: str) -> None:
    pieces = take_apart(f"{pattern} d MMM y", Locale("en"))
    assert pieces is not None
    assert pieces[0].table[0] == wanted
    assert take_apart(f"{5 * pattern[0]} d MMM y", Locale("en")) is None  # "M" alone says little


def test_dates_are_divided_and_no_part_has_those_of_another() -> None:
    parts = divide_dates()
    everything = set().union(*parts)
    assert len(everything) == sum(map(len, parts)) == 73_049, "every day of two centuries"
    assert (min(everything), max(everything)) == (datetime.date(1900, 1, 1), datetime.date(2099, 12, 31))
    assert [round(10 * len(part) / sum(map(len, parts))) for part in parts] == [8, 1, 1]


def test_two_digit_years_and_narrow_months_are_left_out() -> None:
    for locale in LOCALES:
        for form in locale_forms(locale):
            assert form.has("year")
            months = next(piece.table for piece in form.pieces if piece.part == "month")
            assert len(set(months)) == 12
            assert "3/3" not in form.write(datetime.date(2029, 3, 3)).text.replace("2029/3/3", "")


def test_a_weekday_goes_with_its_comma() -> None:
    date = datetime.date(2029, 3, 3)
    shorter = {}
    for full in FORMS:
        if full.name == "full":
            form = without_weekday(full)
            assert form is not None
            shorter[full.locale] = form.write(date).text
    assert shorter["de"] == "3. März 2029"
    assert shorter["hu"] == "2029. március 3."
    assert shorter["ja"] == "2029年3月3日"
    assert shorter["da"] == "den 3. marts 2029"
    assert shorter["tr"] == "3 Mart 2029"


def test_a_weekday_at_the_end_goes_alone_where_nothing_stands_between() -> None:
    numbers = [Piece("year", ()), Piece("month", tuple("123456789XYZ")), Piece("day", tuple("123"))]
    form = Form("xx", "full", (*numbers, Piece("weekday", tuple("abcdefg"))))
    shorter = without_weekday(form)
    assert shorter is not None
    assert shorter.pieces == tuple(numbers)
    middle = Form("xx", "full", (numbers[0], Piece("weekday", tuple("abcdefg")), *numbers[1:]))
    assert without_weekday(middle) is None


def test_answers_and_disjoint_dates(splits: Splits) -> None:
    seen = {}
    for name, part in (("train", splits.train), ("validation", splits.validation), ("test", splits.test)):
        assert isinstance(part, Dates)
        seen[name] = {target for _, target in part.examples()}
        for index in range(0, len(part), 7):
            source, target = part.examples()[index]
            date = datetime.date.fromisoformat(target)
            start, end = part.parts(index)["year"]
            assert source[start:end] == str(date.year)
            start, end = part.parts(index)["day"]
            assert int(source[start:end]) == date.day
    seen["unseen"] = {target for _, target in splits.extra["unseen forms"].examples()}
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & (seen["test"] | seen["unseen"])
    assert not seen["validation"] & (seen["test"] | seen["unseen"])
    train, validation, test = map(set, divide_dates())
    assert len(train | validation | test) == len(train) + len(validation) + len(test) == 73_049
    assert len({source for source, _ in splits.train.examples()}) > 3900


def test_unseen_forms_are_unseen_but_their_words_are_not() -> None:
    forms = divide_forms(LOCALES)
    assert 15 <= len(forms.unseen) <= 0.1 * len(FORMS) + 1
    assert len(forms.seen) + len(forms.unseen) == len(FORMS)
    for date in [datetime.date(2029, month, 23) for month in range(1, 13)]:
        trained = {form.write(date, "lower", commas).text for form in forms.seen for commas in (True, False)}
        for form in forms.unseen:
            assert form.write(date, "lower").text not in trained
            assert form.write(date, "lower", False).text not in trained
    for form in forms.unseen:
        words = {piece for other in forms.seen if other.locale == form.locale for piece in other.pieces}
        assert {piece for piece in form.pieces if piece.part in ("month", "weekday")} <= words
    assert len({form.locale for form in forms.seen}) == len(LOCALES)


def test_every_character_has_a_token(splits: Splits) -> None:
    tokenizer = splits.tokenizer
    assert splits.test is not None
    for part in (splits.train, splits.validation, splits.test, splits.extra["unseen forms"]):
        for source, target in part.examples():
            ids = tokenizer.encode_ordinary(source + target)
            assert tokenizer.unk_id not in ids
            assert len(ids) == len(source + target), "a token is a character, so parts are places in the sequence too"


def test_the_parts_of_a_few_dates_are_found_in_their_text() -> None:
    part = build(DataSettings(task="dates", examples=20, held_out=5, locales=("de",))).train
    assert isinstance(part, Dates)
    for index, (source, target) in enumerate(part.examples()):
        found = {name: source[start:end] for name, (start, end) in part.parts(index).items()}
        date = datetime.date.fromisoformat(target)
        assert (int(found["year"]), int(found["day"])) == (date.year, date.day)


def test_locales_can_be_chosen() -> None:
    chosen = build(DataSettings(task="dates", examples=50, held_out=10, locales=("de", "sv")))
    assert all(source.isascii() or set(source) & set("äöåÄÖÅ") for source, _ in chosen.train.examples())
    with pytest.raises(InputError, match="'xx_YY' is not a locale"):
        build(DataSettings(task="dates", locales=("de", "xx_YY")))
