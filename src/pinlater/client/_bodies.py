"""What is taken for a body, and for a unique key, wherever a caller hands one in."""

from __future__ import annotations

from pinlater.client import values

_ONE_JOB = (values.Job, bytes, bytearray, memoryview, str)


def check_jobs(jobs: object, example: str) -> None:
    """Raises TypeError for one job in place of a list: its parts would be taken for jobs. `example`: the right call."""
    if isinstance(jobs, _ONE_JOB) or not hasattr(jobs, "__iter__"):
        raise TypeError(f"jobs must be a list of jobs, not one {type(jobs).__name__}: {example}")


def body_of(value: object, name: str) -> bytes:
    """The bytes of `value`. Raises TypeError, naming the argument: `bytes` itself would make five zero bytes of the number 5."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"{name} must be bytes, not {type(value).__name__}")


def check_type(job: object, name: str) -> None:
    """Raises TypeError, naming the argument, for what is neither a job nor a body."""
    if isinstance(job, values.Job):
        body_of(job.body, f"{name}.body")
    elif not isinstance(job, bytes | bytearray | memoryview):
        raise TypeError(f"{name} must be a Job or bytes, not {type(job).__name__}")


def check_unique_types(unique: values.UniqueKey, name: str) -> None:
    """Raises TypeError, which begins with `name`, if key, scope or time have another type."""
    key: object = unique.key
    scope: object = unique.scope
    for_ms: object = unique.for_ms
    if not isinstance(key, str):
        raise TypeError(f"{name}: key must be a string, not {key!r}")
    if not isinstance(scope, int):
        raise TypeError(f"{name}: scope must be a UniqueScope such as UniqueScope.TIME, not {scope!r}")
    if isinstance(for_ms, bool) or not isinstance(for_ms, int):
        raise TypeError(f"{name}: for_ms must be an integer of milliseconds, not {for_ms!r}")
