"""What is taken for a body, wherever a caller hands one in."""

from __future__ import annotations

from pinlater.client import values


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
