"""How an attempt ended, as a plain value: made where the function ran (loop, thread or process), reported by the worker.

The retry policy is applied here, because an exception can't leave a child process.
"""

from __future__ import annotations

import random
import traceback
from enum import Enum
from typing import NamedTuple

from pinlater.domain.transitions import ERROR_TEXT_CHARS_MAX
from pinlater.worker._attempts.tracebacks import WITHOUT_TRACEBACK, cut, user_traceback
from pinlater.worker.context import JobContext, Rescheduling, is_last_attempt
from pinlater.worker.errors import ClaimLost, Reject, Retry, Snooze
from pinlater.worker.retries import RetryPolicy, delay_of

STATUS_CHARS_MAX = 500
_TRACE_CHARS_MAX = 3_000


class Kind(Enum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"  # used up one of the job's attempts
    GIVEN_UP = "given up"  # failed, and is not retried
    SNOOZED = "snoozed"  # runs again later and keeps its attempts
    RESCHEDULED = "rescheduled"  # runs again at a given time, perhaps with a new body, and keeps its attempts
    LOST = "lost"  # the claim ended before the attempt; the worker reports nothing
    GIVEN_BACK = "given back"  # the worker stopped first; the job keeps its attempts


class Ending(NamedTuple):
    """How an attempt ended. `delay_ms` is the wait before the next one. `status` is for servers without error type and text.

    `why_lost`: why the claim has ended, if the job's own call found that out. The error is then another one of the function's.
    `traceback`: the text of one from a child process, whose exception does not leave it.
    """

    kind: Kind
    delay_ms: int = 0
    error_type: str = ""
    error_text: str = ""
    status: str = ""
    rescheduling: Rescheduling | None = None
    why_lost: str = ""
    traceback: str = ""


def ending_of(error: BaseException | None, context: JobContext, retry: RetryPolicy) -> Ending:
    """How an attempt ended whose function returned (`error` is None) or raised.

    Once it has learned that its claim has ended, nothing that it returns or raises counts.
    """
    if context.why_lost:
        return _lost(error, context.why_lost)
    if error is None:
        if context.rescheduling is not None:
            return Ending(Kind.RESCHEDULED, rescheduling=context.rescheduling)
        return Ending(Kind.SUCCEEDED)
    if isinstance(error, Snooze):
        return Ending(Kind.SNOOZED, error.delay_ms)
    if isinstance(error, Reject):
        return _failed(error, None)
    if isinstance(error, Retry):
        # The text of the exception says when the job comes again.
        return _failed(error, error.delay_ms, str(error.reason) if is_last_attempt(context.job) else None)
    return failure(error, context.attempt, retry)


def _lost(error: BaseException | None, why: str) -> Ending:
    """The function's error is kept if it is more than the message that the claim has ended."""
    group = error if isinstance(error, BaseExceptionGroup) else None
    if error is None or isinstance(error, ClaimLost) or (group and group.split(ClaimLost)[1] is None):
        return Ending(Kind.LOST, why_lost=why)
    return _failed(error, 0)._replace(kind=Kind.LOST, why_lost=why)


def failure(error: BaseException, attempt: int, retry: RetryPolicy) -> Ending:
    """How attempt number `attempt` (from 1) failed; `retry` says when the next one is, if at all. Its function need not have raised: its
    time limit may have passed, or its process have died."""
    spread = random.random()  # noqa: S311 - spreads retries, guards nothing
    return _failed(error, delay_of(retry, attempt, error, spread))


def _failed(error: BaseException, delay_ms: int | None, text: str | None = None) -> Ending:
    """`text`: instead of the error's own."""
    name, text = type_name(type(error)), _text_of(error) if text is None else text
    status = _sendable(f"{name}: {text}"[:STATUS_CHARS_MAX])
    text = cut(text)
    if not isinstance(error, WITHOUT_TRACEBACK):
        text = _with_trace(text, error)
    text = _sendable(text[:ERROR_TEXT_CHARS_MAX])[:ERROR_TEXT_CHARS_MAX]
    if delay_ms is None:
        return Ending(Kind.GIVEN_UP, 0, _sendable(name), text, status)
    return Ending(Kind.FAILED, delay_ms, _sendable(name), text, status)


def type_name(kind: type[BaseException]) -> str:
    """The type's name, with its module unless that is `builtins`, as tracebacks show it."""
    module, name = kind.__module__, kind.__qualname__
    return name if module == "builtins" else f"{module}.{name}"


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as raised:  # noqa: BLE001 - the exception's class is user code
        return f"(no text: str() raised {type(raised).__name__})"


def _with_trace(text: str, error: BaseException) -> str:
    """The text, then the end of the trace, which is nearest to the cause."""
    try:
        frames = "".join(traceback.format_tb(user_traceback(error)))
    except Exception:  # noqa: BLE001 - the text alone is worth having
        return text
    return f"{text}\n{frames[-_TRACE_CHARS_MAX:]}".rstrip()


def _sendable(text: str) -> str:
    """Escapes bytes that are not text (in file names, say): they would make the whole request of acks fail."""
    return text.encode(errors="backslashreplace").decode()
