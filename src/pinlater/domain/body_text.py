"""A text to find in bodies, as the regular expression with which servers search. Pure."""

from __future__ import annotations

_START, _END = r"(?i)\Q", r"\E"
_INNER_END = r"\E\\E\Q"  # quotes a `\E` that is in the text


def regex_of_text(text: str) -> str:
    """Returns a regular expression in RE2's syntax that matches the text, ignoring case."""
    return _START + text.replace(_END, _INNER_END) + _END


def text_of_regex(regex: str) -> str | None:
    """The text for which this is the regular expression, or None if it is another one."""
    text = regex.removeprefix(_START).removesuffix(_END).replace(_INNER_END, _END)
    return text if regex_of_text(text) == regex else None
