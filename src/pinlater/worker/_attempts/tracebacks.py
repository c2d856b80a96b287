"""Tracebacks of a task's errors as its author reads them: from the task's own code on, with the libraries that it calls.

Frames of the worker above the task and of PinLater below the user's last frame say nothing about the task, and neither do causes inside
PinLater. The logger `pinlater.worker` shows them at the level debug.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from traceback import StackSummary, TracebackException
from types import FrameType, TracebackType

from pinlater.client.errors import PinLaterError
from pinlater.domain.transitions import ERROR_TEXT_CHARS_MAX
from pinlater.worker.errors import ProcessDied, Reject, Retry, TimeLimitExceeded

# The packages that a task calls or that call it. Others, such as `pinlater.cli`, have tasks of their own.
_OURS = (
    "pinlater.client.",
    "pinlater.domain.",
    "pinlater.testing.",
    "pinlater.tls.",
    "pinlater.wire.",
    "pinlater.worker.",
)
# Python's modules and the libraries that these packages call: their frames below ours are details of ours.
_CALLED_BY_US = sys.stdlib_module_names | {"msgspec", "opentelemetry", "pydantic", "thrift"}
_CHARS_MAX = 100_000
_MARK_CHARS_MAX = 50
_log = logging.getLogger("pinlater.worker")
# Their text says all; a traceback would show only the worker, or what the task raised on purpose.
WITHOUT_TRACEBACK = (ProcessDied, Reject, Retry, TimeLimitExceeded)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).startswith(_OURS)


def _is_users(frame: FrameType) -> bool:
    return not _is_ours(frame) and _module(frame).partition(".")[0] not in _CALLED_BY_US


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _shown(frames: Sequence[FrameType]) -> slice:
    """The frames from the task's own code on, without ours below the last one of the user's code."""
    first = next((index for index, frame in enumerate(frames) if not _is_ours(frame)), len(frames))
    users = [index for index, frame in enumerate(frames) if _is_users(frame)]
    below = range(users[-1] + 1 if users else first, len(frames))
    return slice(first, next((index for index in below if _is_ours(frames[index])), len(frames)))


def user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of the frames to show; None if there is none. The error keeps its own."""
    lines: list[TracebackType] = []
    line = error.__traceback__
    while line is not None:
        lines.append(line)
        line = line.tb_next
    shown: TracebackType | None = None
    for line in reversed(lines[_shown([line.tb_frame for line in lines])]):
        shown = TracebackType(shown, line.tb_frame, line.tb_lasti, line.tb_lineno)
    return shown


def text_of(error: BaseException) -> str:
    """Returns the traceback as Python prints it, with head, chained errors and last line, each cut if it is long. Returns '' for an error
    whose text says everything, and if the traceback can't be printed."""
    if isinstance(error, WITHOUT_TRACEBACK):
        return ""
    try:
        printed = TracebackException.from_exception(error)
        if not _log.isEnabledFor(logging.DEBUG):
            _shorten(printed, error)
        return "".join(map(_cut_line, printed.format())).rstrip("\n")[-_CHARS_MAX:]
    except Exception:  # noqa: BLE001 - the exception's class is user code
        return ""


def cut(text: str, chars_max: int = ERROR_TEXT_CHARS_MAX) -> str:
    """The text, or its beginning and how many characters are missing."""
    if len(text) <= chars_max:
        return text
    kept = max(0, chars_max - _MARK_CHARS_MAX)
    return f"{text[:kept]}… ({len(text) - kept:,} more characters)"


def _cut_line(printed: str) -> str:
    """A frame, or type and text of an error, as a traceback prints it. A long text would push the frames out of the bound."""
    return printed if len(printed) <= ERROR_TEXT_CHARS_MAX else cut(printed.rstrip("\n")) + "\n"


def _shorten(printed: TracebackException, error: BaseException) -> None:
    """Leaves out frames and causes inside PinLater: of the error, of those that it was raised from, and of those in a group."""
    left = [(printed, error)]
    while left:
        printed, error = left.pop()
        printed.stack = StackSummary.from_list(list(printed.stack)[_shown(_frames(error))])
        if isinstance(error, BaseExceptionGroup):
            left += zip(printed.exceptions or (), error.exceptions, strict=False)
        before = link = _before(printed, error)
        while link is not None and _is_internal(link[1], error):
            link = _before(*link)
        if link is not before:
            printed.__cause__, printed.__context__ = None, None if link is None else link[0]
            printed.__suppress_context__ = False
        if link is not None:
            left.append(link)


def _before(printed: TracebackException, error: BaseException) -> tuple[TracebackException, BaseException] | None:
    """The error that is printed before this one."""
    if printed.__cause__ is not None and error.__cause__ is not None:
        return printed.__cause__, error.__cause__
    if printed.__context__ is not None and error.__context__ is not None and not printed.__suppress_context__:
        return printed.__context__, error.__context__
    return None


def _is_internal(error: BaseException, after: BaseException) -> bool:
    """Whether no code of the user raised it or let it pass. A client's error has what led to it in its text."""
    frames = _frames(error)
    return not any(map(_is_users, frames)) and (any(map(_is_ours, frames)) or isinstance(after, PinLaterError))
