"""What a call can raise, by code and by whose fault it was.

`CallerError`: the request can't be carried out as it is, so sending it again won't help. `WorldError`: a network, a server or a
store failed or is busy, and the same call may succeed later (`retryable` says so). Everything derives from `PinLaterError`.
An answer with a code that this client doesn't know becomes the plain class of its side; `detail` keeps the server's own word.
"""

from __future__ import annotations

from pinlater.domain.errors import ErrorCode


class PinLaterError(Exception):
    """Any answer other than success, or none at all.

    `code` is the contract's number, or None where no server answered. `detail` is a word in capitals that programs can compare
    ('' where the server said none). `retry_after_ms` is the server's hint, or None.
    """

    code: ErrorCode | None = None
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        detail: str = "",
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.retry_after_ms = retry_after_ms
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable


class CallerError(PinLaterError):
    """The request can't be carried out as it is."""


class WorldError(PinLaterError):
    """Something outside the caller failed or is busy."""

    retryable = True


class QueueNotFound(CallerError):
    """The queue does not exist, or no longer."""

    code = ErrorCode.QUEUE_NOT_FOUND


class QueueNameInvalid(CallerError):
    """Names are one or more ASCII letters, digits and underscores."""

    code = ErrorCode.QUEUE_NAME_INVALID


class QueueNameTooLong(CallerError):
    """The name is longer than the store can keep."""

    code = ErrorCode.QUEUE_NAME_TOO_LONG


class PasswordInvalid(CallerError):
    """The admin password is wrong, or the server has none."""

    code = ErrorCode.PASSWORD_INVALID


class PriorityNotSupported(CallerError):
    """Priorities run from 1 (highest) to the server's number of levels."""

    code = ErrorCode.PRIORITY_NOT_SUPPORTED


class ContinuationInvalid(CallerError):
    """A scan's continuation that the server did not give out."""

    code = ErrorCode.CONTINUATION_INVALID


class DequeueRateLimited(WorldError):
    """The queue's limit is used up, or the queue is paused."""

    code = ErrorCode.DEQUEUE_RATE_LIMITED


class EnqueueRejected(WorldError):
    """No place for the jobs now: the queue or the store is full, or every shard only drains."""

    code = ErrorCode.ENQUEUE_REJECTED


class NoHealthyShards(WorldError):
    """The server reaches none of its shards."""

    code = ErrorCode.NO_HEALTHY_SHARDS


class ShardConnectionFailed(WorldError):
    """A shard that the request needs is out of the server's reach."""

    code = ErrorCode.SHARD_CONNECTION_FAILED


class ServerUnreachable(WorldError):
    """No connection could be made; the request was not sent."""


class ConnectionLost(WorldError):
    """The connection broke before the answer came: the request may or may not have taken effect."""


class DeadlineExceeded(WorldError):
    """No answer within the call's time: the request may or may not have taken effect."""


class UnknownMethod(CallerError):
    """The server doesn't know this method: an original PinLater server, or an older version of ours."""


class TooManyWaiting(WorldError):
    """The batcher of this process holds as many jobs as it may; none of this call was enqueued."""


class ClientClosed(CallerError):
    """The client was closed, or not opened yet."""


_BY_CODE: dict[int, type[PinLaterError]] = {
    int(kind.code): kind
    for kind in (
        QueueNotFound,
        QueueNameInvalid,
        QueueNameTooLong,
        PasswordInvalid,
        PriorityNotSupported,
        ContinuationInvalid,
        DequeueRateLimited,
        EnqueueRejected,
        NoHealthyShards,
        ShardConnectionFailed,
    )
    if kind.code is not None
}


def error_for(
    code: int, message: str, detail: str = "", retryable: bool | None = None, retry_after_ms: int | None = None
) -> PinLaterError:
    """The exception for a server's refusal. Code 500 is the caller's fault unless the server called it retryable.

    An original server says neither detail nor retryable; its 500 is the world's, since it uses that code for its own failures.
    """
    kind = _BY_CODE.get(code)
    if kind is None:
        kind = CallerError if retryable is False else WorldError
    known = ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN
    return kind(message, code=known, detail=detail, retryable=retryable, retry_after_ms=retry_after_ms)
