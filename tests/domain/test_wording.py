"""Sentences of numbers, spans and errors."""

from __future__ import annotations

import pytest

from pinlater.domain.wording import error_line

PYDANTIC = """1 validation error for Signup
mail
  Field required [type=missing, input_value={'name': 'Ada'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.11/v/missing
  File "tasks.py", line 3, in welcome
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        ("no such address", "no such address"),
        ('no such address\n  File "mails.py", line 3, in send\n    raise\n', "no such address"),
        ('\n  File "mails.py", line 3, in send\n', ""),
        ("no such address\n\tat com.example.Mails.send(Mails.java:3)", "no such address"),
        ("no such address\n    at send (mails.js:3:1)", "no such address"),
        ("no such address\nTraceback (most recent call last):", "no such address"),
        ("\n  two errors:\n\n  a\n  b\n", "two errors:; a; b"),
        ("x" * 200 + "\nmore", "x" * 200),
        ("first\n" + "x" * 200, "first; " + "x" * 112 + "…"),
    ],
)
def test_an_error_in_one_line_has_no_trace_and_is_as_long_as_its_first_line_or_120_characters(
    text: str, line: str
) -> None:
    assert error_line(text) == line


def test_the_line_of_a_pydantic_error_names_the_field() -> None:
    assert error_line(PYDANTIC).startswith("1 validation error for Signup; mail; Field required [type=missing, ")
    assert len(error_line(PYDANTIC)) == 120
