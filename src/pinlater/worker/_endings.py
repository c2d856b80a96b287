"""How an attempt ended, as a plain value: made where the handler ran (loop, thread or process), turned into a report by the worker.

The retry policy is asked here, because only here the exception itself is at hand.
"""

from __future__ import annotations

import traceback
from enum import Enum
from typing import NamedTuple

from pinlater.worker.context import JobContext, Rescheduling
from pinlater.worker.errors import ProcessDied, Reject, Snooze, TimeLimitExceeded
from pinlater.worker.errors import Retry as RetryAfter
from pinlater.worker.retries import RetryPolicy, delay_of

ERROR_TEXT_CHARS_MAX = 4_000
STATUS_CHARS_MAX = 500
_TRACE_CHARS_MAX = 3_000


class Kind(Enum):
    """What the worker has to do about an attempt that ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # spends an attempt
    GIVEN_UP = "given up"  # FAILED for good
    SNOOZED = "snoozed"  # again later, nothing spent
    RESCHEDULED = "rescheduled"  # again at a time, perhaps with a new body, nothing spent
    LOST = "lost"  # the claim ended before the attempt did; nothing is reported
    GIVEN_BACK = "given back"  # the worker stopped first; nothing spent


class Ending(NamedTuple):
    """How an attempt ended. `delay_ms`: before the next one. `status`: for servers that keep no error type and text."""

    kind: Kind
    delay_ms: int = 0
    error_type: str = ""
    error_text: str = ""
    status: str = ""
    rescheduling: Rescheduling | None = None


def ending_of(error: BaseException | None, context: JobContext, retry: RetryPolicy, spread: float) -> Ending:
    """What became of an attempt whose handler returned (None) or raised."""
    if error is None:
        if context.rescheduling is not None:
            return Ending(Kind.RESCHEDULED, rescheduling=context.rescheduling)
        return Ending(Kind.SUCCEEDED)
    if isinstance(error, Snooze):
        return Ending(Kind.SNOOZED, error.delay_ms)
    if isinstance(error, Reject):
        return _failed(error, None)
    if isinstance(error, RetryAfter):
        return _failed(error, error.delay_ms)
    return _failed(error, delay_of(retry, context.attempt, error, spread))


def failure(error: BaseException, delay_ms: int | None) -> Ending:
    """An attempt that failed where no handler raised: stopped at its time limit, or by the death of its process."""
    return _failed(error, delay_ms)


def _failed(error: BaseException, delay_ms: int | None) -> Ending:
    name, text = type_name(type(error)), _text_of(error)
    status = _sendable(f"{name}: {text}"[:STATUS_CHARS_MAX])
    deliberate = isinstance(error, Reject | RetryAfter | TimeLimitExceeded | ProcessDied)
    if not deliberate:
        text = _with_trace(text, error)
    text = _sendable(text[:ERROR_TEXT_CHARS_MAX])[:ERROR_TEXT_CHARS_MAX]
    if delay_ms is None:
        return Ending(Kind.GIVEN_UP, 0, _sendable(name), text, status)
    return Ending(Kind.FAILED, delay_ms, _sendable(name), text, status)


def type_name(kind: type[BaseException]) -> str:
    """With its module, but for Python's own."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001 - a handler's own class may not even be able to say what it is
        return f"(its text can't be had: {type(raised).__name__})"


def _with_trace(text: str, error: BaseException) -> str:
    """The text, then where it came from: the end of the trace, which is nearest to the cause."""
    try:
        frames = "".join(traceback.format_tb(error.__traceback__))
    except Exception:  # noqa: BLE001 - the text alone is worth having
        return text
    return f"{text}\n{frames[-_TRACE_CHARS_MAX:]}".rstrip()


def _sendable(text: str) -> str:
    """Names of files may hold bytes that are no text; sent as they are they would spoil every ack of their request."""
    return text.encode(errors="backslashreplace").decode()
