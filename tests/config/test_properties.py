"""Java's properties syntax, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.properties import PropertiesInvalid, Property, parse_properties


def entries(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse_properties(text)}


@pytest.mark.parametrize(
    "text", ["a=b", "a:b", "a b", "a = b", "a\t:\tb", "  a=b", "a   b", "a\f=b", "a=b\r\n", "a=b\r"]
)
def test_key_and_value_are_parted_by_equals_colon_or_space(text: str) -> None:
    assert entries(text) == {"a": "b"}


def test_comments_and_blank_lines_say_nothing() -> None:
    assert entries("# a=1\n! b=2\n\n   \n  # c=3\\\nd=4\n") == {"d": "4"}


def test_only_the_first_separator_counts() -> None:
    assert entries("a==b\nc:=d\ne = f = g\n") == {"a": "=b", "c": "=d", "e": "f = g"}


def test_a_key_without_a_value_is_empty() -> None:
    assert entries("a\nb=\n") == {"a": "", "b": ""}


def test_a_backslash_at_the_end_joins_the_next_line_without_its_leading_space() -> None:
    assert entries("a = one, \\\n    two, \\\n\tthree\nb=2") == {"a": "one, two, three", "b": "2"}


def test_two_backslashes_at_the_end_are_one_and_join_nothing() -> None:
    assert entries("a=x\\\\\nb=2") == {"a": "x\\", "b": "2"}


def test_a_comment_sign_after_a_joined_line_is_text() -> None:
    assert entries("a=1\\\n#2") == {"a": "1#2"}


def test_escapes_stand_for_characters() -> None:
    assert entries("a\\ b\\=c=\\t\\n\\r\\f\\q\\\\\\u00e9\\uD83D\\uDE00") == {"a b=c": "\t\n\r\fq\\é😀"}


def test_a_broken_unicode_escape_names_its_line() -> None:
    with pytest.raises(PropertiesInvalid, match="four hexadecimal digits") as caught:
        parse_properties("a=1\nb=\\u12x4\n")
    assert caught.value.line == 2


def test_entries_know_the_line_that_they_begin_on() -> None:
    assert parse_properties("# c\na=1\\\n2\nb=3") == [Property(2, "a", "12"), Property(4, "b", "3")]


@given(st.text())
def test_any_text_gives_entries_or_our_one_error(text: str) -> None:
    try:
        found = parse_properties(text)
    except PropertiesInvalid:
        return
    assert all(isinstance(entry, Property) and entry.line >= 1 for entry in found)


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_properties_that_java_escapes_are_read_back(pairs: dict[str, str]) -> None:
    """Every character written as its escape, as `Properties.store` does for what it can't write plainly."""

    def escaped(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))

    assert entries("\n".join(f"{escaped(key)}={escaped(value)}" for key, value in pairs.items())) == pairs
