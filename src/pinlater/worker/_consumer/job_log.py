"""The log lines of attempts: started at debug; how it ended at info, warning (runs again, or its claim was lost) or error (gave up).

A failure is one line with one traceback, which begins with the task's own code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType

from pinlater.client.values import ClaimedJob
from pinlater.worker._attempts.endings import Ending, Kind, type_name, user_traceback
from pinlater.worker._consumer.held_jobs import HeldJob
from pinlater.worker.context import attempt_number
from pinlater.worker.errors import CantDecode, ClaimLost, ProcessDied, Reject, Retry, TimeLimitExceeded
from pinlater.worker.logs import fields_of

_log = logging.getLogger("pinlater.worker")
# Their text says all; a traceback would show only the worker, or what the task raised on purpose.
_WITHOUT_TRACEBACK = (CantDecode, ProcessDied, Reject, Retry, TimeLimitExceeded)
_OUR_NAMES = {type_name(kind): kind.__name__ for kind in (*_WITHOUT_TRACEBACK, ClaimLost)}  # `Reject` says as much
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def started(job: ClaimedJob, task: str) -> None:
    """An attempt starts."""
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s started", task, extra=_fields(job, task))


def ended(held: HeldJob, task: str, ending: Ending, error: BaseException | None, took_s: float) -> None:
    """An attempt ended. `error`: its exception if it is in this process. A failure has its own level, whatever the task's."""
    job, took = held.job, span(took_s)
    if ending.kind is Kind.SUCCEEDED:
        if _log.isEnabledFor(held.log_level):
            _log.log(held.log_level, "%s succeeded in %s", task, took, extra=_fields(job, task))
    elif ending.kind in (Kind.FAILED, Kind.GIVEN_UP):
        _log_failure(job, task, ending, error, took)
    elif ending.kind is Kind.SNOOZED:
        again = span(ending.delay_ms / 1000)
        _log.log(held.log_level, "%s snoozed after %s, again in %s", task, took, again, extra=_fields(job, task))
    elif ending.kind is Kind.RESCHEDULED:
        _log.log(held.log_level, "%s rescheduled after %s", task, took, extra=_fields(job, task))
    elif ending.kind is Kind.LOST:
        _log_loss(job, task, ending, error, took)


def _log_failure(job: ClaimedJob, task: str, ending: Ending, error: BaseException | None, took: str) -> None:
    last = ending.kind is Kind.GIVEN_UP or (job.attempts_allowed > 0 and job.attempts_remaining <= 1)
    then = "gave up" if last else f"again in {span(ending.delay_ms / 1000)}"
    _log.log(
        logging.ERROR if last else logging.WARNING,
        "%s failed in %s, %s: %s", task, took, then, _error_line(ending),
        exc_info=_exc_info(error), extra=_fields_with_trace(job, task, ending, error),
    )  # fmt: skip


def _log_loss(job: ClaimedJob, task: str, ending: Ending, error: BaseException | None, took: str) -> None:
    """No failure, and no promise of another attempt. An error of the task's own is shown here and not reported."""
    if not ending.error_type:
        _log.warning("%s: claim lost after %s: %s", task, took, ending.why_lost, extra=_fields(job, task))
        return
    _log.warning(
        "%s: claim lost after %s: %s; its error does not count: %s", task, took, ending.why_lost, _error_line(ending),
        exc_info=_exc_info(error), extra=_fields_with_trace(job, task, ending, error),
    )  # fmt: skip


def _error_line(ending: Ending) -> str:
    """Type and text of the error."""
    text = ending.error_text.partition("\n")[0]
    name = _OUR_NAMES.get(ending.error_type, ending.error_type)
    if name == Retry.__name__:
        text = text.rpartition("; again in ")[0]  # the reason; the line has the delay
    return f"{name}: {text}" if text else name


def _exc_info(error: BaseException | None) -> _ExcInfo | None:
    if error is None or isinstance(error, _WITHOUT_TRACEBACK):
        return None
    return type(error), error, user_traceback(error)


def _fields_with_trace(job: ClaimedJob, task: str, ending: Ending, error: BaseException | None) -> Mapping[str, object]:
    """Of an error in a child process, the trace is text."""
    trace = ending.error_text.partition("\n")[2] if error is None else ""
    return {**_fields(job, task), "traceback": trace} if trace else _fields(job, task)


def _fields(job: ClaimedJob, task: str) -> Mapping[str, object]:
    return {**fields_of(job), "task": task, "attempt": attempt_number(job)}


def span(seconds: float) -> str:
    """A time for people: `0.8ms`, `12ms`, `1.5s`, `2m 5s`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f}ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if number]
    return " ".join(parts[:2])
