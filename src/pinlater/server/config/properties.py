"""The syntax of Java's properties files, as its documentation defines it: bytes of text in, keys and values out.

Comments begin with `#` or `!`; a key ends at the first `=`, `:` or white space; a backslash at the end of a line joins the next
one, which loses its leading white space; `\\t \\n \\r \\f \\uXXXX` are characters, any other escaped character stands for itself.
It never guesses: an entry that can't be read is a problem with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_NEWLINES = re.compile(r"\r\n|\r|\n")
_SPACE = " \t\f"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


class Property(NamedTuple):
    """One entry and the line it begins on, counted from 1."""

    line: int
    key: str
    value: str


class PropertiesInvalid(ValueError):
    """An entry that can't be read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def parse_properties(text: str) -> list[Property]:
    """Returns all entries in order; a key may occur twice. Raises `PropertiesInvalid`."""
    return [_entry(number, line) for number, line in _logical_lines(text)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without blank lines and comments. A comment is never continued."""
    joined, first = "", 0
    for number, natural in enumerate(_NEWLINES.split(text), start=1):
        line = natural.lstrip(_SPACE)
        if not first:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield first, joined + line
        joined, first = "", 0
    if first and joined:
        yield first, joined


def _entry(number: int, line: str) -> Property:
    match = _KEY.match(line)
    if match is None:  # the pattern matches any text, an empty key included
        raise PropertiesInvalid(number, "can't be read")
    return Property(number, _unescaped(match[1], number), _unescaped(line[match.end() :], number))


def _unescaped(text: str, number: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code, character = match.groups()
        if code:
            return chr(int(code, 16))
        if character == "u":
            raise PropertiesInvalid(
                number, f"\\u needs four hexadecimal digits: {text[match.start() : match.start() + 6]}"
            )
        return _CONTROL.get(character, character or "")

    # A pair of surrogates, written as two escapes, is one character.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
