"""The log lines of attempts: started at debug; how it ended at info, warning (runs again, or its claim was lost) or error (gave up).

A failure is one line with one traceback, which begins with the task's own code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pinlater.client.values import ClaimedJob
from pinlater.domain.failures import without_retry_delay
from pinlater.domain.wording import error_line
from pinlater.worker._attempts.endings import Ending, Kind, type_name
from pinlater.worker._attempts.tracebacks import WITHOUT_TRACEBACK, text_of, user_traceback
from pinlater.worker.context import attempt_number, is_last_attempt
from pinlater.worker.errors import CantDecode, ClaimLost, Retry
from pinlater.worker.logs import fields_of
from pinlater.worker.tasks import Task

_log = logging.getLogger("pinlater.worker")
_OUR_NAMES = {
    type_name(kind): kind.__name__ for kind in (*WITHOUT_TRACEBACK, CantDecode, ClaimLost)
}  # `Reject` says as much


def started(job: ClaimedJob, task: str) -> None:
    """An attempt starts."""
    _log.debug("%s started", task, extra=_fields(job, task))


def ended(job: ClaimedJob, of: Task[..., Any], ending: Ending, error: BaseException | None, took_s: float) -> None:
    """An attempt ended. `error`: its exception if it is in this process. A failure has its own level, whatever the task's."""
    task, level, took = of.name, of.options.log_level, span(took_s)
    if ending.kind is Kind.SUCCEEDED:
        _log.log(level, "%s succeeded in %s", task, took, extra=_fields(job, task))
    elif ending.kind in (Kind.FAILED, Kind.GIVEN_UP):
        _log_failure(job, task, ending, error, took)
    elif ending.kind is Kind.SNOOZED:
        again = span(ending.delay_ms / 1000)
        _log.log(level, "%s snoozed after %s, again in %s", task, took, again, extra=_fields(job, task))
    elif ending.kind is Kind.RESCHEDULED:
        _log.log(level, "%s rescheduled after %s", task, took, extra=_fields(job, task))
    elif ending.kind is Kind.LOST:
        _log_loss(job, task, ending, error, took)


def _log_failure(job: ClaimedJob, task: str, ending: Ending, error: BaseException | None, took: str) -> None:
    last = ending.kind is Kind.GIVEN_UP or is_last_attempt(job)
    then = "gave up" if last else f"again in {span(ending.delay_ms / 1000)}"
    level, line = logging.ERROR if last else logging.WARNING, _error_line(ending)
    _log_error(level, "%s failed in %s, %s: %s", (task, took, then, line), _fields(job, task), ending, error)


def _log_loss(job: ClaimedJob, task: str, ending: Ending, error: BaseException | None, took: str) -> None:
    """No failure, and no promise of another attempt. An error of the task's own is shown here and not reported."""
    if not ending.error_type:
        _log.warning("%s: claim lost after %s: %s", task, took, ending.why_lost, extra=_fields(job, task))
        return
    text, line = "%s: claim lost after %s: %s; its error does not count: %s", _error_line(ending)
    _log_error(logging.WARNING, text, (task, took, ending.why_lost, line), _fields(job, task), ending, error)


def _log_error(
    level: int,
    text: str,
    args: tuple[str, ...],
    fields: Mapping[str, object],
    ending: Ending,
    error: BaseException | None,
) -> None:
    """A line with the traceback, as text for any formatter; one of an error in this process also as objects."""
    if not _log.isEnabledFor(level):
        return
    path, number, function, _ = _log.findCaller()
    shown = None if error is None or isinstance(error, WITHOUT_TRACEBACK) else error
    objects = None if shown is None else (type(shown), shown, user_traceback(shown))
    record = _log.makeRecord(_log.name, level, path, number, text, args, objects, function, fields)
    record.exc_text = (ending.traceback if error is None else text_of(error)) or None
    _log.handle(record)


def _error_line(ending: Ending) -> str:
    """Type and text of the error."""
    text = error_line(ending.error_text)
    name = _OUR_NAMES.get(ending.error_type, ending.error_type)
    if name == Retry.__name__:
        text = without_retry_delay(text)  # the line has the delay
    return f"{name}: {text}" if text else name


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
