"""The errors of service and client, by whose fault they are: one class for each condition that a caller or several packages distinguish.
A package that alone raises an error defines it, as a subclass of one of these, beside the code that raises it.

`CallerError`: the request can't be executed as it is, so sending it again won't help. `WorldError`: a network, a server or a store
failed or is busy, and the same call may succeed later (see `retryable`).

The eleven codes are the wire contract's and may not grow, because an unknown enum value breaks old clients. `detail` is more specific
than a code: a word in capitals that programs can compare; docs/reference/protocol.md lists those of servers' answers. The service makes
its errors with `of`, which writes the message; a client passes the received message.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self, TypeVar

from pinlater.domain.wording import counted


class ErrorCode(IntEnum):
    """The codes that old clients know, with the contract's numbers."""

    CONTINUATION_INVALID = 400
    PASSWORD_INVALID = 403
    QUEUE_NAME_INVALID = 410
    QUEUE_NAME_TOO_LONG = 411
    QUEUE_NOT_FOUND = 413
    PRIORITY_NOT_SUPPORTED = 416
    DEQUEUE_RATE_LIMITED = 429
    ENQUEUE_REJECTED = 430
    UNKNOWN = 500
    NO_HEALTHY_SHARDS = 501
    SHARD_CONNECTION_FAILED = 502


class PinLaterError(Exception):
    """Any answer other than success, or none at all.

    `code` is the contract's number, or None if no server answered. `detail` is a word in capitals that programs can compare ('' if the
    server sent none). `retryable` is true if the same call may succeed later; `retry_after_ms` is a hint, or None.
    """

    code: ErrorCode | None = None
    detail: str = ""
    retryable: bool = False
    retry_after_ms: int | None = None
    text: str = ""  # the message if none is given

    def __init__(
        self,
        message: str | None = None,
        *,
        code: ErrorCode | None = None,
        detail: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        self.message = self.text if message is None else message
        super().__init__(self.message)
        if code is not None:
            self.code = code
        if detail is not None:
            self.detail = detail
        if retryable is not None:
            self.retryable = retryable
        if retry_after_ms is not None:
            self.retry_after_ms = retry_after_ms


def code_of(error: PinLaterError) -> ErrorCode:
    """The code of an error in answers; UNKNOWN if only its `detail` is more specific."""
    return ErrorCode.UNKNOWN if error.code is None else error.code


Error = TypeVar("Error", bound=PinLaterError)


def adding(error: Error, text: str, *, before: str = "") -> Error:
    """Returns a copy of the error with text before and after its message. It is a copy, since one error may be the answer to many
    callers.
    """
    copy = type(error).__new__(type(error))
    copy.__dict__.update(error.__dict__)
    copy.message = before + error.message + text
    copy.args = (copy.message,)
    copy.__cause__ = error.__cause__
    return copy


class CallerError(PinLaterError):
    """The request can't be executed as it is."""


class WorldError(PinLaterError):
    """Something outside the caller failed or is busy."""

    retryable = True


class Unavailable(WorldError):
    """A part of the service that the call needs failed, is unreachable, is full or stops. Keeps its `__cause__`."""


# --- the caller's fault ------------------------------------------------------------------------------------------------------


class InvalidArgument(CallerError, ValueError):
    """A value out of its range, or one that can't be understood."""

    detail = "INVALID_ARGUMENT"


class DescriptorInvalid(CallerError):
    """A job descriptor that can't be parsed refuses its whole request."""

    detail = "DESCRIPTOR_INVALID"

    @classmethod
    def of(cls, descriptor: str) -> Self:
        return cls(f"Invalid job descriptor: {descriptor[:200]!r}")


class BodyTooLarge(CallerError):
    """A job's body is longer than the server accepts."""

    detail = "BODY_TOO_LARGE"

    @classmethod
    def of(cls, index: int, size_bytes: int, limit_bytes: int, bound_by: str = "setting jobs.max_body_bytes") -> Self:
        return cls(f"Body of job {index} has {size_bytes} bytes; this server takes at most {limit_bytes} ({bound_by})")


class QueueNameInvalid(CallerError, ValueError):
    """Names are one or more ASCII letters, digits and underscores."""

    code = ErrorCode.QUEUE_NAME_INVALID
    detail = "QUEUE_NAME_INVALID"

    @classmethod
    def of(cls, name: str) -> Self:
        return cls(f"Invalid queue name: {name[:200]}")


class QueueNameTooLong(CallerError, ValueError):
    """The name is longer than the store can keep."""

    code = ErrorCode.QUEUE_NAME_TOO_LONG
    detail = "QUEUE_NAME_TOO_LONG"

    @classmethod
    def of(cls, name: str, limit: int) -> Self:
        return cls(f"Queue name too long: {len(name)} characters, at most {limit} are possible")


class QueueNotFound(CallerError):
    """The queue does not exist, or no longer."""

    code = ErrorCode.QUEUE_NOT_FOUND
    detail = "QUEUE_NOT_FOUND"

    @classmethod
    def of(cls, name: str) -> Self:
        return cls(f"Queue not found: {name[:200]}")


class TooManyQueues(CallerError):
    """The maximum number of queues already exists."""

    detail = "TOO_MANY_QUEUES"

    @classmethod
    def of(cls, name: str, limit: int) -> Self:
        return cls(
            f"Queue {name} was not made: there are {limit} queues, as many as may be (setting jobs.max_queues); "
            "delete some that are not used"
        )


WITHOUT_HASH = "NO_ADMIN_PASSWORD"


class PasswordInvalid(CallerError):
    """The admin password is wrong, or the server has none."""

    code = ErrorCode.PASSWORD_INVALID
    detail = "PASSWORD_INVALID"
    text = "Invalid admin password."

    @classmethod
    def of(cls, *, configured: bool) -> Self:
        """`configured`: whether the server has a hash to compare a password with."""
        if configured:
            return cls()
        return cls(
            "This server has no admin password, so it deletes queues only for a token of the role admin (`pinlater queue delete "
            "--no-password`). For a password, make a hash with `pinlater server hash-password` and set admin_password_hash",
            detail=WITHOUT_HASH,
        )


class AccessDenied(CallerError):
    """The caller may not do this: its token, or the roles of callers without one, lack the role or the queue."""

    code = ErrorCode.PASSWORD_INVALID
    detail = "ACCESS_DENIED"


class BodiesMasked(AccessDenied):
    """The filter would reveal bodies that are masked for the caller in this queue."""

    detail = "BODIES_MASKED"

    @classmethod
    def of(cls, queue: str, masked: str = "Bodies", filter: str = "regex") -> Self:
        return cls(
            f"{masked} of queue {queue} are masked for your roles, so no {filter} may search them; leave out the {filter}"
        )


class TokenRequired(AccessDenied):
    """The call came without a token, and callers without one may not do this."""

    detail = "TOKEN_REQUIRED"


class TokenInvalid(AccessDenied):
    """The server does not know the token, or it has expired."""

    detail = "TOKEN_INVALID"


class PriorityNotSupported(CallerError, ValueError):
    """Priorities run from 1 (highest) to the server's number of levels."""

    code = ErrorCode.PRIORITY_NOT_SUPPORTED
    detail = "PRIORITY_NOT_SUPPORTED"

    @classmethod
    def of(cls, priority: int, levels: int) -> Self:
        return cls(f"Priority {priority} is not supported: priorities run from 1 to {levels}")


class ContinuationInvalid(CallerError):
    """A scan's continuation that the server did not issue."""

    code = ErrorCode.CONTINUATION_INVALID
    detail = "CONTINUATION_INVALID"

    @classmethod
    def of(cls, continuation: str) -> Self:
        return cls(f"Invalid continuation: {continuation[:200]!r}")


class RequestKeyConflict(CallerError):
    """A request key was sent a second time with other content."""

    detail = "REQUEST_KEY_CONFLICT"

    @classmethod
    def of(cls, key: str) -> Self:
        return cls(f"Request key (over HTTP: Idempotency-Key) {key[:64]!r} was used for a request with other content")


class UnknownMethod(CallerError):
    """The server doesn't know this method: an original PinLater server, or an older version of ours."""


class ClientClosed(CallerError):
    """The client was closed, or not opened yet."""


class AnswerTooLarge(InvalidArgument):
    """The answer would be longer than the server's answers may be."""

    detail = "ANSWER_TOO_LARGE"
    size_bytes = limit_bytes = 0

    @classmethod
    def of(cls, size_bytes: int, limit_bytes: int) -> Self:
        error = cls(
            f"The answer has {size_bytes} bytes or more; this server's answers have at most {limit_bytes} (settings "
            "thrift.max_answer_bytes and thrift.max_frame_bytes); ask for less"
        )
        error.size_bytes, error.limit_bytes = size_bytes, limit_bytes
        return error


# --- limits -------------------------------------------------------------------------------------------------------------------


class DequeueRateLimited(WorldError):
    """The queue's limit is used up, or the queue is paused."""

    code = ErrorCode.DEQUEUE_RATE_LIMITED
    detail = "DEQUEUE_RATE_LIMITED"

    @classmethod
    def of(cls, name: str, *, retry_after_ms: int | None = None, paused: bool = False) -> Self:
        return cls(
            f"Dequeue rate limit exceeded for queue: {name}" + (" (the queue is paused)" if paused else ""),
            detail="QUEUE_PAUSED" if paused else None,
            retry_after_ms=retry_after_ms,
        )


class EnqueueRejected(WorldError):
    """There is no space for the jobs now: the queue or the store is full, or every shard only drains."""

    code = ErrorCode.ENQUEUE_REJECTED
    detail = "ENQUEUE_REJECTED"


class QueueFull(EnqueueRejected):
    """The queue's configured longest backlog is reached."""

    detail = "QUEUE_FULL"

    @classmethod
    def of(cls, name: str, backlog: int, limit: int, new: int) -> Self:
        return cls(
            f"Queue {name} is full: its backlog of {counted(backlog, 'job')} (at most {limit:,}) has no place for {new:,} more; "
            "add workers, or raise max_backlog",
            retry_after_ms=1000,
        )


class OrderElsewhere(EnqueueRejected):
    """The shard is not where the jobs with ordering keys of the queue are stored. Nothing was stored."""

    @classmethod
    def of(cls, queue: str, shard: str) -> Self:
        return cls(
            f"Shard {shard} does not take the jobs with ordering keys of queue {queue}: another shard does, or is about to. "
            "Nothing was stored",
            retry_after_ms=1000,
        )


class TooManyWaiting(WorldError):
    """Too many calls or jobs wait in the server or in a batcher of this process, or the server has its maximum number of connections.

    Nothing of this call was executed.
    """

    detail = "TOO_MANY_WAITING"


class QuotaExceeded(TooManyWaiting):
    """The callers with one token, or those without a token, use as much of this server as their quota allows.

    Nothing of this call was executed. With the detail CONNECTION_QUOTA_EXCEEDED the server may close the connection after the answer.
    """

    detail = "QUOTA_EXCEEDED"


# --- what failed --------------------------------------------------------------------------------------------------------------


class StoreFull(EnqueueRejected, Unavailable):
    """The disk or the database is full; nothing already accepted is lost."""

    detail = "STORE_FULL"

    @classmethod
    def of(cls, where: str) -> Self:
        return cls(f"The store is full ({where}); free some space. No accepted job is lost")


class NoHealthyShards(Unavailable):
    """The server reaches none of its shards."""

    code = ErrorCode.NO_HEALTHY_SHARDS
    detail = "NO_HEALTHY_SHARDS"
    text = "Unable to find healthy shard"


class ShardConnectionFailed(Unavailable):
    """A shard that the request needs is unreachable or failed; repeating is safe if the contract says so."""

    code = ErrorCode.SHARD_CONNECTION_FAILED
    detail = "SHARD_UNREACHABLE"


class ShardRefused(ShardConnectionFailed):
    """The shard is reachable but could not do this now: another transaction holds the rows, or a packet is too long. Nothing was
    changed.
    """

    detail = "SHARD_REFUSED"


class OutcomeUnknown(ShardConnectionFailed):
    """The shard went away, or took too long, between a change and its answer: it may have been stored or not.

    Only a call that the server recognises when it is repeated (a keyed enqueue with `repeat`, an ack) may simply be sent again.
    """

    detail = "OUTCOME_UNKNOWN"


class RequestTooOld(ShardConnectionFailed):
    """The request waited in the server for so long that it was not begun. Nothing was stored."""

    detail = "REQUEST_TOO_OLD"
    retry_after_ms = 1000
    text = "The request waited in this server for too long, and was not begun"


class Draining(Unavailable):
    """The server is stopping; another one, or this one after its restart, will answer."""

    detail = "DRAINING"
    retry_after_ms = 1000
    text = "The server is stopping"


class SchemaRefused(Unavailable):
    """The store's schema is not one that this program may touch."""

    detail = "SCHEMA_REFUSED"
    retryable = False


# --- no answer ----------------------------------------------------------------------------------------------------------------


class ServerUnreachable(WorldError):
    """No connection could be made; the request was not sent."""


class ConnectionLost(WorldError):
    """The connection broke before the answer arrived: the request may or may not have taken effect."""


class DeadlineExceeded(WorldError):
    """There was no answer within the time of the call: the request may or may not have taken effect."""
