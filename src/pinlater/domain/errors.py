"""Every error the service answers with, by whose fault it is.

The eleven codes are the wire contract's and may not grow, because an unknown enum value breaks old clients.
What is finer than a code is said in `detail`, a word in capitals that programs can compare.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class ErrorCode(IntEnum):
    """The codes old clients know, with the contract's numbers."""

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
    """An answer other than success. Raised by the service, mapped to the wire at the edge.

    `retryable` says whether the same call may succeed later; `retry_after_ms` is a hint, or None.
    """

    code: ErrorCode = ErrorCode.UNKNOWN
    detail: str = "INTERNAL"
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        retryable: bool | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if detail is not None:
            self.detail = detail
        if retryable is not None:
            self.retryable = retryable
        self.retry_after_ms = retry_after_ms

    def adding(self, text: str) -> Self:
        """The same error with `text` behind its message. A copy: one error may be the answer to many callers."""
        copy = self.__class__.__new__(self.__class__)
        copy.__dict__.update(self.__dict__)
        copy.message = self.message + text
        copy.args = (copy.message,)
        copy.__cause__ = self.__cause__
        return copy


class CallerError(PinLaterError):
    """The request can't be carried out as it is; sending it again won't help."""

    detail = "INVALID_ARGUMENT"


class WorldError(PinLaterError):
    """Something outside of us failed: a disk, a database, a network. Keeps its `__cause__`."""

    retryable = True


class InvalidArgument(CallerError):
    """A value out of its range, or one that can't be understood."""


class DescriptorInvalid(CallerError):
    """A job descriptor that can't be parsed refuses its whole request."""

    def __init__(self, text: str) -> None:
        super().__init__(f"Invalid job descriptor: {text[:200]!r}", detail="DESCRIPTOR_INVALID")


class BodyTooLarge(CallerError):
    """A job's body is longer than this server takes."""

    def __init__(self, index: int, size_bytes: int, limit_bytes: int, bound_by: str = "setting max_body_bytes") -> None:
        super().__init__(
            f"Body of job {index} has {size_bytes} bytes; this server takes at most {limit_bytes} ({bound_by})",
            detail="BODY_TOO_LARGE",
        )


class QueueNameInvalid(CallerError):
    """Names are one or more ASCII letters, digits and underscores."""

    code = ErrorCode.QUEUE_NAME_INVALID
    detail = "QUEUE_NAME_INVALID"

    def __init__(self, name: str) -> None:
        super().__init__(f"Invalid queue name: {name[:200]}")


class QueueNameTooLong(CallerError):
    """The name is longer than every store can keep."""

    code = ErrorCode.QUEUE_NAME_TOO_LONG
    detail = "QUEUE_NAME_TOO_LONG"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(f"Queue name too long: {len(name)} characters, at most {limit} are possible")


class QueueNotFound(CallerError):
    """The queue does not exist, or no longer."""

    code = ErrorCode.QUEUE_NOT_FOUND
    detail = "QUEUE_NOT_FOUND"

    def __init__(self, name: str) -> None:
        super().__init__(f"Queue not found: {name[:200]}")
        self.queue = name


class TooManyQueues(CallerError):
    """As many queues exist as may."""

    detail = "TOO_MANY_QUEUES"

    def __init__(self, name: str, limit: int) -> None:
        super().__init__(
            f"Queue {name} was not made: there are {limit} queues, as many as may be (setting max_queues); delete some that are not used"
        )


class PasswordInvalid(CallerError):
    """The admin password is wrong, or the server has no hash to compare it with."""

    code = ErrorCode.PASSWORD_INVALID
    detail = "PASSWORD_INVALID"

    def __init__(self, *, configured: bool = True) -> None:
        if configured:
            super().__init__("Invalid admin password.")
        else:
            super().__init__(
                "This server has no admin password, so it deletes no queue: make a hash with `pinlater hash-password` and set "
                "admin_password_hash",
                detail="NO_ADMIN_PASSWORD",
            )


class PriorityNotSupported(CallerError):
    """Priorities run from 1 (highest) to the configured number of levels."""

    code = ErrorCode.PRIORITY_NOT_SUPPORTED
    detail = "PRIORITY_NOT_SUPPORTED"

    def __init__(self, priority: int, levels: int) -> None:
        super().__init__(f"Priority {priority} is not supported: priorities run from 1 to {levels}")


class ContinuationInvalid(CallerError):
    """A scan's continuation is not one that this server gave out."""

    code = ErrorCode.CONTINUATION_INVALID
    detail = "CONTINUATION_INVALID"

    def __init__(self, continuation: str) -> None:
        super().__init__(f"Invalid continuation: {continuation[:200]!r}")


class RequestKeyConflict(CallerError):
    """A request key came a second time with other content."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Request key {key[:64]!r} was used for a request with other content", detail="REQUEST_KEY_CONFLICT"
        )


class DequeueRateLimited(PinLaterError):
    """The queue's limit is used up, or the queue is paused."""

    code = ErrorCode.DEQUEUE_RATE_LIMITED
    detail = "DEQUEUE_RATE_LIMITED"
    retryable = True

    def __init__(self, name: str, *, retry_after_ms: int | None = None, paused: bool = False) -> None:
        super().__init__(
            f"Dequeue rate limit exceeded for queue: {name}" + (" (the queue is paused)" if paused else ""),
            detail="QUEUE_PAUSED" if paused else None,
            retry_after_ms=retry_after_ms,
        )


class EnqueueRejected(PinLaterError):
    """No place to put the jobs now: every shard only drains, the queue or the store is full."""

    code = ErrorCode.ENQUEUE_REJECTED
    detail = "ENQUEUE_REJECTED"
    retryable = True


class QueueFull(EnqueueRejected):
    """The queue's configured longest backlog is reached."""

    detail = "QUEUE_FULL"

    def __init__(self, name: str, backlog: int, limit: int) -> None:
        super().__init__(
            f"Queue {name} is full: {backlog} jobs wait and at most {limit} may; add workers, or raise max_backlog",
            retry_after_ms=1000,
        )


class StoreFull(EnqueueRejected, WorldError):
    """The disk or the database is full; nothing already accepted is lost."""

    detail = "STORE_FULL"

    def __init__(self, where: str) -> None:
        super().__init__(f"The store is full ({where}); free some space. No accepted job is lost")


class TooManyWaiting(PinLaterError):
    """A bound on what may wait or run at once is reached."""

    detail = "TOO_MANY_WAITING"
    retryable = True


class NoHealthyShards(WorldError):
    """No shard is in reach."""

    code = ErrorCode.NO_HEALTHY_SHARDS
    detail = "NO_HEALTHY_SHARDS"

    def __init__(self) -> None:
        super().__init__("Unable to find healthy shard")


class ShardConnectionFailed(WorldError):
    """A shard that this request needs is out of reach or failed; repeating it is safe where the contract says so."""

    code = ErrorCode.SHARD_CONNECTION_FAILED
    detail = "SHARD_UNREACHABLE"


class ShardRefused(ShardConnectionFailed):
    """The shard is in reach and could not do this now: another transaction holds the rows, or a packet is too long. Nothing was changed."""

    detail = "SHARD_REFUSED"


class OutcomeUnknown(ShardConnectionFailed):
    """The shard went away, or took too long, between a change and its answer: it may have been stored or not.

    Only what is recognised when it comes again (a keyed enqueue that says `repeat`, an ack) may simply be sent again.
    """

    detail = "OUTCOME_UNKNOWN"


class RequestTooOld(WorldError):
    """The request lay in this server for so long that it was not begun. Nothing of it was stored."""

    code = ErrorCode.SHARD_CONNECTION_FAILED
    detail = "REQUEST_TOO_OLD"

    def __init__(self) -> None:
        super().__init__("The request waited in this server for too long, and was not begun", retry_after_ms=1000)


class Draining(WorldError):
    """The server is stopping; another one, or this one after its restart, will answer."""

    detail = "DRAINING"

    def __init__(self) -> None:
        super().__init__("The server is stopping", retry_after_ms=1000)


class SchemaRefused(WorldError):
    """The store's schema is not one that this program may touch."""

    detail = "SCHEMA_REFUSED"
    retryable = False
