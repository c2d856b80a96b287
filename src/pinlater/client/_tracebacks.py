"""Tracebacks of errors as a caller sees them: without the frames of the client, which say nothing about the caller's code."""

from __future__ import annotations

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


def short(error: E) -> E:
    """The same error, and the same causes, without the frames that they have come through so far."""
    link: BaseException | None = error
    for _ in range(10):  # a chain of causes may be a circle
        if link is None:
            break
        link.__traceback__ = None
        link = link.__cause__
    return error
