"""Words are cut exactly as tokenizers cuts them, and no character is ever lost."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from clearhead.errors import InputError
from clearhead.tokenizer.split import PATTERNS, Splitter, is_portable
from tests.tokenizer.texts import texts


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=300)
@given(text=texts)
def test_same_words_as_tokenizers(name: str, text: str) -> None:
    peer = pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")
    assert Splitter(name)(text) == [word for word, _ in peer.pre_tokenize_str(text)]


def test_same_words_as_the_byte_level_of_tokenizers(stdlib: list[str]) -> None:
    peer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    splitter = Splitter("gpt2")
    for text in stdlib[::40]:
        lengths = [end - start for _, (start, end) in peer.pre_tokenize_str(text)]
        assert [len(word) for word in splitter(text)] == lengths


@pytest.mark.parametrize("name", PATTERNS)
@given(text=texts)
def test_ours_agree_with_the_regex_module_in_old_unicode(name: str, text: str) -> None:
    """An engine that is neither `re` nor Rust; characters of newer Unicode left out, for its tables differ there."""
    old = "".join(character for character in text if character.isprintable() or ord(character) < 0x3000)
    old = "".join(character for character in old if character not in "\u1c89\ua7dc\u088f\ua7d2")
    assert Splitter(name)(old) == regex.compile(PATTERNS[name], regex.V1).findall(old)


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\p{Han}+|[a-z]", r"(a)(b)|(?<=\n)c", r"\S+", "x*", r"[\P{L}\S]+"])
@given(text=st.one_of(texts, st.text("abcx\n 漢", max_size=10)))
def test_words_are_the_text(pattern: str, text: str) -> None:
    words = Splitter(pattern)(text)
    assert "".join(words) == text
    assert "" not in words


@given(text=st.text("abcx\n\t é漢", max_size=10))
@pytest.mark.parametrize(
    "pattern", [r"[a-c]+", r"(a)(b)", r"\s|x(?!\S|\s)", r"\p{Han}", r"[^\S\n]+|\P{L}", r"\p{Lt}|[\p{M}]b|[^\p{M}]a"]
)
def test_a_pattern_of_ones_own_is_cut_as_tokenizers_cuts_it(pattern: str, text: str) -> None:
    peer = pre_tokenizers.Split(Regex(pattern), "isolated")
    assert Splitter(pattern)(text) == [word for word, _ in peer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("last", ["\uffff", "\U00010000", "\U0010ffff"])
def test_no_character_at_the_end_of_a_plane_is_lost(name: str, last: str) -> None:
    text = f"a{last}b {last} 1{last}"
    assert "".join(Splitter(name)(text)) == text


def test_a_broken_pattern_is_refused() -> None:
    with pytest.raises(InputError, match=r"'\(a' is not a regular expression"):
        Splitter("(a")
    with pytest.raises(InputError, match="not a regular expression"):
        Splitter(r"\p{Nonsense}")


@pytest.mark.parametrize("pattern", ["a$", "^a", "a{1,3}+", "(?s:a.)", r"[\^$]+(?im)", r"\p{Han}$"])
def test_what_each_engine_reads_in_its_own_way_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="each read in their own way"):
        Splitter(pattern)


def test_what_only_the_regex_module_reads_is_not_portable() -> None:
    assert all(is_portable(pattern) for pattern in PATTERNS.values())
    assert is_portable(r"[$^]+|\$|\^|(?i:a)|(?:b)|(?<=c)")
    assert not any(is_portable(pattern) for pattern in (r"\w+", r"\p{Han}", "[a-z&&[^b]]"))
