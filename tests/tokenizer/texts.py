"""Random texts that look for trouble: all planes, white space of every kind, marks, emoji, contractions, digits."""

from hypothesis import strategies as st

_PIECES = [
    *(
        "'s",
        "'t",
        "'re",
        "'LL",
        "'ſ",
        "’s",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "\n\n",
        "\x0b",
        "\x1c",
        "\x1f",
        "\x85",
        "\xa0",
    ),
    *(
        "\u1680",
        "\u2003",
        "\u200b",
        "\u2028",
        "\u202f",
        "\u3000",
        "\ufeff",
        "\x00",
        "\x7f",
        "\x9f",
        "_",
        "__",
        "...",
        "/",
    ),
    *("a", "B", "the", " the", "The", "ing", "camelCase", "XMLHttp", "ß", "é", "e\u0301", "ñ", "İ", "ı", "ǅ", "ʰ", "ª"),
    *(
        "0",
        "12",
        "345",
        "6789",
        "²",
        "½",
        "Ⅷ",
        "٣",
        "一",
        "三",
        "日本語",
        "가",
        "न",
        "नि",
        "ก",
        "ำ",
        "א",
        "ع",
        "\u0605",
    ),
    *("😀", "👨‍👩‍👧", "🇩🇪", "☺️", "👍🏽", "𝒳", "𝟘", "𠀀", "\U000e0041", "\U000e0101", "\U0010fffd", "\ufffd", "\ufffe"),
    *("\U0001e030", "\U00011f02", "\U00031350", "\u1c89", "\ua7dc"),  # letters since Unicode 15 and 16
    *("\u088f", "\ua7d2", "\U000323b0", "\U0003d000"),  # letters of later versions, unassigned in 16
]

texts = st.lists(
    st.one_of(st.sampled_from(_PIECES), st.characters(codec="utf-8"), st.text(max_size=8)), max_size=12
).map("".join)
