"""Checks of what a worker is made with, and a task is registered and enqueued with. Errors name the task and the argument."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, cast

from pinlater.client._bodies import check_unique_types
from pinlater.client._servers import check_servers
from pinlater.client.async_client import AsyncClient
from pinlater.client.sync_client import Client
from pinlater.client.values import UniqueKey, UniqueScope
from pinlater.domain.durations import duration_text
from pinlater.domain.queue import QUEUE_NAME_RULE, is_queue_name
from pinlater.worker._enqueueing.ordering_keys import check_ordering_key
from pinlater.worker.durations import Duration, as_delay_ms, as_duration_ms, as_time_ms
from pinlater.worker.envelope import RESERVED_HEADERS
from pinlater.worker.middleware import Middleware

_LOG_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PRIORITY_MAX, _ATTEMPTS_MAX = 127, 2**31 - 1


class JobOptions(NamedTuple):
    """Options of one job."""

    delay: Duration | None = None
    at: datetime | int | None = None
    priority: int | None = None
    unique: str | UniqueKey | None = None
    headers: Mapping[str, str] = {}
    attempts: int | None = None
    expires_in: Duration | None = None
    claim_timeout: Duration | None = None
    ordering_key: str | None = None


class JobTimes(NamedTuple):
    """The times of a task's jobs in milliseconds; None if the options name none."""

    delay_ms: int | None
    at_ms: int | None
    expires_in_ms: int | None
    claim_timeout_ms: int | None


def check_client(given: object) -> None:
    """Raises TypeError or ValueError if a worker can't run or enqueue with this client or these servers. Connects to nothing."""
    if isinstance(given, Client):
        raise TypeError("a worker needs an AsyncClient, or the addresses of the servers, not a Client: its calls block")
    if given is not None and not isinstance(given, AsyncClient) and not callable(given):
        check_servers(cast("str", given))


def check_queue(name: object) -> None:
    """Raises TypeError or ValueError if no queue can have this name."""
    if not isinstance(name, str):
        raise TypeError(f"queue must be a name, not {type(name).__name__}: @worker.task('emails')")
    if not is_queue_name(name):
        raise ValueError(f"queue {name!r}: {QUEUE_NAME_RULE}")


def check_attempts(task: str, attempts: object) -> None:
    """None leaves them to the queue."""
    _check_integer(task, "attempts", attempts, _ATTEMPTS_MAX, "the first one counts")


def check_priority(task: str, priority: object) -> None:
    """The server has fewer levels, three unless it is configured otherwise, and refuses others at the enqueue."""
    _check_integer(
        task,
        "priority",
        priority,
        _PRIORITY_MAX,
        "1 is the highest, and a server has 3 unless it is configured otherwise",
    )


def _check_integer(task: str, argument: str, value: object, most: int, hint: str) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"task {task}: {argument} must be an integer, not {type(value).__name__}")
    if not 1 <= value <= most:
        raise ValueError(f"task {task}: {argument} must be at least 1 and at most {most}, not {value}; {hint}")


def check_name(name: object) -> None:
    """None: the function's name is the task's."""
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"a task's name must be a text that is not empty, not {name!r}")


def check_codec(what: str, codec: object) -> None:
    """None: the worker's, or JSON."""
    if codec is not None and (isinstance(codec, type) or not isinstance(getattr(codec, "content_type", None), str)):
        raise TypeError(f"{what} must be a codec such as JsonCodec(), with a content_type, not {codec!r}")


def check_middleware(middleware: object) -> None:
    """Raises TypeError if these are not objects of `Middleware`."""
    if isinstance(middleware, Middleware) or not isinstance(middleware, Iterable):
        raise TypeError(f"Worker(): middleware must be a list of Middleware objects, not {middleware!r}")
    for each in middleware:
        if not isinstance(each, Middleware):
            raise TypeError(f"Worker(): middleware must be objects of subclasses of Middleware, not {each!r}")


def log_level_of(task: str, level: object) -> int:
    """The number of the logging level."""
    number = _LOG_LEVELS.get(level.lower()) if isinstance(level, str) else None
    if number is None:
        raise ValueError(f"task {task}: log_level must be one of {', '.join(map(repr, _LOG_LEVELS))}, not {level!r}")
    return number


def duration_of(task: str, argument: str, value: Duration | None) -> int | None:
    """Milliseconds."""
    return None if value is None else as_duration_ms(value, f"task {task}: {argument}")


def positive_duration_of(task: str, argument: str, value: Duration | None) -> int | None:
    """Milliseconds, at least one."""
    milliseconds = duration_of(task, argument, value)
    if milliseconds == 0 and not value:
        raise ValueError(f"task {task}: {argument} must be more than 0, or None")
    return None if milliseconds is None else max(1, milliseconds)


def check_options(task: str, options: JobOptions) -> JobTimes:
    """Checks all options of a task's jobs."""
    if options.delay is not None and options.at is not None:
        raise ValueError(f"task {task}: say either delay or at")
    check_attempts(task, options.attempts)
    check_priority(task, options.priority)
    _check_unique(task, options.unique)
    check_ordering_key(task, options.ordering_key)
    _check_headers(task, options.headers)
    times = JobTimes(
        None if options.delay is None else as_delay_ms(options.delay, f"task {task}: delay"),
        _at_ms(task, options.at),
        duration_of(task, "expires_in", options.expires_in),
        positive_duration_of(task, "claim_timeout", options.claim_timeout),
    )
    if times.delay_ms is not None and times.expires_in_ms is not None and times.expires_in_ms < times.delay_ms:
        raise ValueError(
            f"task {task}: expires_in ({duration_text(times.expires_in_ms)}) is shorter than "
            f"delay ({duration_text(times.delay_ms)}), so that the job would never run"
        )
    return times


def check_expiry(task: str, options: JobOptions, times: JobTimes, now_ms: int) -> None:
    """Raises ValueError if a job that is enqueued now expires before it is due."""
    if times.at_ms is not None and times.expires_in_ms is not None and now_ms + times.expires_in_ms < times.at_ms:
        raise ValueError(
            f"task {task}: expires_in ({duration_text(times.expires_in_ms)}) ends before the job is due (at {options.at}), "
            "so that the job would never run"
        )


def _check_unique(task: str, unique: object) -> None:
    if not isinstance(unique, str | UniqueKey | None):
        raise TypeError(f"task {task}: unique must be a str or a UniqueKey, not {type(unique).__name__}")
    if unique is not None and not (unique.key if isinstance(unique, UniqueKey) else unique):
        raise ValueError(f"task {task}: unique must not be empty; None is no key")
    if isinstance(unique, UniqueKey):
        check_unique_types(unique, f"task {task}: unique")
    if isinstance(unique, UniqueKey) and unique.scope is UniqueScope.TIME and not unique.for_ms:
        raise ValueError(f"task {task}: unique of scope TIME needs for_ms, the milliseconds for which it holds")


def _check_headers(task: str, headers: object) -> None:
    if not isinstance(headers, Mapping):
        raise TypeError(f"task {task}: headers must be a mapping of texts by names, not {type(headers).__name__}")
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"task {task}: headers must be texts by names, not {key!r}: {type(value).__name__}")
        if key in RESERVED_HEADERS:
            raise ValueError(f"task {task}: headers must not have {key!r}: the task sets it itself")


def _at_ms(task: str, at: object) -> int | None:
    return None if at is None else as_time_ms(at, f"task {task}: at", "for a duration use delay")
