"""Names that other job systems have for what tasks have here. An error of an unknown name says what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

_WITH_OPTIONS = "write task.using(delay=...).enqueue(...)"
_METHODS = {
    "delay": "write task.enqueue(...)",
    "send": "write task.enqueue(...)",
    "defer": "write task.enqueue(...)",
    "s": "write task.job(...), and task.enqueue_many([...]) to enqueue it",
    "signature": "write task.job(...), and task.enqueue_many([...]) to enqueue it",
    "apply_async": _WITH_OPTIONS,
    "send_with_options": _WITH_OPTIONS,
    "enqueue_with": _WITH_OPTIONS,
    "configure": _WITH_OPTIONS,
    "enqueue_in": _WITH_OPTIONS,
    "enqueue_at": "write task.using(at=...).enqueue(...)",
}
# The options of `@worker.task(...)` and of `task.using(...)`.
_OF_BOTH = frozenset({"attempts", "priority", "claim_timeout", "ordering_key"})
TASK_OPTIONS = _OF_BOTH | {
    *("queue", "name", "default", "process", "concurrency", "retry", "time_limit", "codec", "log_level"),
}
CRON_OPTIONS = TASK_OPTIONS | {"tz", "missed", "overlap", "look_back"}
USING_OPTIONS = _OF_BOTH | {"delay", "at", "unique", "headers", "expires_in"}
# Options of other systems, and those that do the same here.
_OPTIONS = {
    **dict.fromkeys(("max_retries", "retries", "max_attempts", "max_tries"), "attempts"),
    **dict.fromkeys(("autoretry_for", "retry_for", "retry_when", "throws", "retry_kwargs"), "retry"),
    **dict.fromkeys(("retry_backoff", "retry_backoff_max", "min_backoff", "max_backoff", "retry_jitter"), "retry"),
    **dict.fromkeys(("default_retry_delay", "retry_delay"), "retry"),
    **dict.fromkeys(("countdown", "schedule_in", "defer_by"), "delay"),
    **dict.fromkeys(("eta", "schedule_at", "scheduled_at", "defer_until"), "at"),
    **dict.fromkeys(("expires", "max_age", "ttl"), "expires_in"),
    **dict.fromkeys(("soft_time_limit", "timeout", "job_timeout"), "time_limit"),
    **dict.fromkeys(("task_id", "job_id", "queueing_lock"), "unique"),
    **dict.fromkeys(("timezone", "time_zone", "zone"), "tz"),
    "actor_name": "name",
    "queue_name": "queue",
    "serializer": "codec",
    "visibility_timeout": "claim_timeout",
}
_VALUES = {"retry": "exponential() or by_error({...})"}
_REMARKS = {"attempts": ", which counts the first attempt too"}
_TIMES = frozenset(
    [
        "every",
        "interval",
        "seconds",
        "second",
        "minutes",
        "minute",
        "hours",
        "hour",
        "days",
        "day",
        "crontab",
        "schedule",
    ]
)
_LEFT_OUT = {
    **dict.fromkeys(("bind", "pass_context", "context"), "leave it out; the task calls current_job()"),
    "acks_late": "leave it out; a job is acknowledged after its task, always",
    "reject_on_worker_lost": "leave it out; the jobs of a dead worker come back, always",
    "rate_limit": "limit the queue: pinlater queue config QUEUE --max-jobs-per-second N",
    **dict.fromkeys(("ignore_result", "store_results", "result_ttl", "keep_result"), "leave it out; no result is kept"),
}


def method_hint(name: str) -> str:
    """What to write instead of a method that tasks don't have, after a colon; '' if that is not known."""
    return f": {_METHODS[name]}" if name in _METHODS else ""


def producer_hint(name: str) -> str:
    """What to write instead of a method that a task with options doesn't have, after a colon; '' if that is not known."""
    if name in ("enqueue_many", "enqueue_many_async"):
        return f": write later = task.using(...), and task.{name}([later.job(...), ...])"
    hint = method_hint(name)
    return ": write task.using(...).enqueue(...)" if hint else ""


def task_option_hint(name: str) -> str:
    """What to write instead of an option that `@worker.task` doesn't have."""
    return _hint(name, TASK_OPTIONS, "@worker.task(..., {})", USING_OPTIONS, "task.using({}).enqueue(...)")


def worker_option_hint(name: str, own: Sequence[str], settings: Sequence[str]) -> str:
    """What to write instead of an argument that `Worker` doesn't have. `settings`: the fields of `WorkerSettings`."""
    if name in settings:
        return f": write Worker(settings=WorkerSettings({name}=...))"
    return _hint(name, frozenset(own), "Worker({})", TASK_OPTIONS, "@worker.task(..., {})")


def cron_option_hint(name: str) -> str:
    """What to write instead of an option that `@worker.cron` doesn't have."""
    if name in _TIMES:
        return ": write an expression, such as @worker.cron('*/5 * * * *')"
    return _hint(name, CRON_OPTIONS, "@worker.cron(..., {})", USING_OPTIONS, "task.using({}).enqueue(...)")


def using_option_hint(name: str) -> str:
    """What to write instead of an option that `using` doesn't have."""
    return _hint(name, USING_OPTIONS, "using({})", TASK_OPTIONS, "@worker.task(..., {}), for all jobs of the task")


def ending_option_hint(name: str, kind: str, option: str) -> str:
    """What to write instead of an argument that `Retry` or `Snooze` doesn't have; '' if that is not known."""
    if _OPTIONS.get(name, name) in ("after", "delay", "at"):
        return f": write {kind}({option}=...), in seconds from now"
    if _OPTIONS.get(name, name) == "attempts":
        return ": write @worker.task(..., attempts=...), which counts the first attempt too"
    return ""


def argument_hint(unknown: Sequence[str], own: Sequence[str]) -> str:
    """What to write instead of names that are none of the function's `own` arguments: the option of that name, or a name that is near."""
    using, task = "task.using({}).enqueue(...)", "@worker.task(..., {}), for all jobs of the task"
    hints = (_hint(name, USING_OPTIONS, using, TASK_OPTIONS, task, typing_mistakes=False) for name in unknown)
    from difflib import get_close_matches

    near = (match for name in unknown for match in get_close_matches(name, own, n=1))
    return next(filter(None, hints), "") or next((f"; did you mean {match}?" for match in near), "")


def _hint(
    name: str,
    own: frozenset[str],
    write: str,
    other: frozenset[str],
    write_other: str,
    *,
    typing_mistakes: bool = True,
) -> str:
    if name in _LEFT_OUT:
        return f": {_LEFT_OUT[name]}"
    option = _OPTIONS.get(name, name)
    assignment = f"{option}={_VALUES.get(option, '...')}"
    if option in own:
        return f": write {write.format(assignment)}{_REMARKS.get(option, '')}"
    if option in other:
        return f": write {write_other.format(assignment)}"
    from difflib import get_close_matches

    near = get_close_matches(name, sorted(own), n=1) if typing_mistakes else []
    return f"; did you mean {near[0]}?" if near else ""
