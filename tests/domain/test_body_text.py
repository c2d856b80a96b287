"""Texts in bodies, as regular expressions."""

from __future__ import annotations

import re2
from hypothesis import example, given
from hypothesis import strategies as st

from pinlater.domain.body_text import regex_of_text, text_of_regex


@given(st.text(st.sampled_from("aB\\EQ.*(é\n\0"), max_size=8), st.text(max_size=3))
@example("\\E", "")
@example("a\\", "E")
def test_a_text_is_found_as_it_is_and_nothing_else_is(text: str, around: str) -> None:
    regex = regex_of_text(text)
    found = re2.search(regex.encode(), (around + text.swapcase() + around).encode())
    assert found is not None
    assert found.group().decode().lower() == text.lower()
    assert text_of_regex(regex) == text


def test_other_regular_expressions_are_no_texts() -> None:
    for regex in ("", "a", "(?i)a", r"\Qa\E", r"(?i)\Qa\Eb\E", r"(?i)\Qa", r"(?i)\Q"):
        assert text_of_regex(regex) is None, regex
