"""From errors to the wire: the one place that decides how much of a failure a caller sees."""

from __future__ import annotations

from pinlater.domain.errors import PinLaterError, TooManyWaiting, code_of
from pinlater.wire.generated import structs as types


def declared_exception(error: PinLaterError) -> types.PinLaterException:
    """The answer for an error of the service. Its code is one of the eleven; `detail` is more specific."""
    return types.PinLaterException(
        error_code=int(code_of(error)),
        message=error.message,
        detail=error.detail,
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
    )


def unexpected() -> PinLaterError:
    """The answer for a bug of ours: it contains no internals, which are in the log."""
    return PinLaterError("Internal error; the server's log says more", detail="INTERNAL")


class TooManyRequests(TooManyWaiting):
    """More requests are under way than this server takes."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"{limit} requests are under way, as many as this server takes (setting max_concurrent_requests)",
            retry_after_ms=100,
        )


class TooManyBytes(TooManyWaiting):
    """This request does not fit into the memory that the server may use now. Nothing of it was executed."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"Requests, answers that clients have not read, and scans hold as many of {limit_bytes} bytes that this "
            "one does not fit (setting max_buffered_bytes); come again later, or ask for less",
            retry_after_ms=1000,
        )


class TooManyPipelined(TooManyWaiting):
    """Too many requests wait on one connection behind a dequeue that waits for jobs. Nothing of this one was executed."""

    def __init__(self) -> None:
        super().__init__(
            "Too many requests wait on this connection behind a dequeue with waitMillis "
            "(settings max_pipelined_requests, max_pipelined_bytes); use another connection for them",
            retry_after_ms=100,
        )


class TooManyConnections(TooManyWaiting):
    """More connections are open than this server takes."""

    detail = "TOO_MANY_CONNECTIONS"

    def __init__(self) -> None:
        super().__init__(
            "More connections are open than this server takes (setting max_connections, and the system's limit of open files)",
            retry_after_ms=1000,
        )
