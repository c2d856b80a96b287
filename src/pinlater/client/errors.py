"""What a call can raise, by code and by whose fault it was: the classes of `pinlater.domain.errors` that a client can get.

A `CallerError` is a mistake in the request, a `WorldError` a failure of a network, a server or a store; both derive from
`PinLaterError`, whose `retryable` says whether the same call may succeed later. An answer with a code that this client doesn't know becomes
the plain class of its side; `detail` keeps the server's own word.
"""

from __future__ import annotations

from pinlater.domain.errors import AccessDenied as AccessDenied
from pinlater.domain.errors import BodiesMasked as BodiesMasked
from pinlater.domain.errors import BodyTooLarge as BodyTooLarge
from pinlater.domain.errors import CallerError as CallerError
from pinlater.domain.errors import ClientClosed as ClientClosed
from pinlater.domain.errors import ConnectionLost as ConnectionLost
from pinlater.domain.errors import ContinuationInvalid as ContinuationInvalid
from pinlater.domain.errors import DeadlineExceeded as DeadlineExceeded
from pinlater.domain.errors import DequeueRateLimited as DequeueRateLimited
from pinlater.domain.errors import DescriptorInvalid as DescriptorInvalid
from pinlater.domain.errors import Draining as Draining
from pinlater.domain.errors import EnqueueRejected as EnqueueRejected
from pinlater.domain.errors import ErrorCode as ErrorCode
from pinlater.domain.errors import InvalidArgument as InvalidArgument
from pinlater.domain.errors import NoHealthyShards as NoHealthyShards
from pinlater.domain.errors import OutcomeUnknown as OutcomeUnknown
from pinlater.domain.errors import PasswordInvalid as PasswordInvalid
from pinlater.domain.errors import PinLaterError as PinLaterError
from pinlater.domain.errors import PriorityNotSupported as PriorityNotSupported
from pinlater.domain.errors import QueueFull as QueueFull
from pinlater.domain.errors import QueueNameInvalid as QueueNameInvalid
from pinlater.domain.errors import QueueNameTooLong as QueueNameTooLong
from pinlater.domain.errors import QueueNotFound as QueueNotFound
from pinlater.domain.errors import QuotaExceeded as QuotaExceeded
from pinlater.domain.errors import RequestKeyConflict as RequestKeyConflict
from pinlater.domain.errors import RequestTooOld as RequestTooOld
from pinlater.domain.errors import ServerUnreachable as ServerUnreachable
from pinlater.domain.errors import ShardConnectionFailed as ShardConnectionFailed
from pinlater.domain.errors import ShardRefused as ShardRefused
from pinlater.domain.errors import StoreFull as StoreFull
from pinlater.domain.errors import TokenInvalid as TokenInvalid
from pinlater.domain.errors import TokenRequired as TokenRequired
from pinlater.domain.errors import TooManyQueues as TooManyQueues
from pinlater.domain.errors import TooManyWaiting as TooManyWaiting
from pinlater.domain.errors import UnknownMethod as UnknownMethod
from pinlater.domain.errors import WorldError as WorldError


class WrongType(InvalidArgument, TypeError):
    """A value in a call has a type that no request can carry. Nothing was sent."""


_BY_CODE: dict[ErrorCode | None, type[PinLaterError]] = {
    kind.code: kind
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
}
_BY_DETAIL: dict[str, type[PinLaterError]] = {
    "TOO_MANY_CONNECTIONS": TooManyWaiting,
    "CONNECTION_QUOTA_EXCEEDED": QuotaExceeded,
}
_BY_DETAIL |= {
    kind.detail: kind
    for kind in (
        InvalidArgument,
        DescriptorInvalid,
        BodyTooLarge,
        TooManyQueues,
        RequestKeyConflict,
        QueueFull,
        StoreFull,
        TooManyWaiting,
        QuotaExceeded,
        Draining,
        ShardRefused,
        OutcomeUnknown,
        RequestTooOld,
        AccessDenied,
        BodiesMasked,
        TokenRequired,
        TokenInvalid,
    )
}


def error_for(
    code: int, message: str, detail: str = "", retryable: bool | None = None, retry_after_ms: int | None = None
) -> PinLaterError:
    """The exception for a server's refusal. Code 500 is the caller's fault unless the server called it retryable.

    An original server says neither detail nor retryable; its 500 is the world's, since it uses that code for its own failures.
    """
    known = ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN
    kind = _BY_CODE.get(known, CallerError if retryable is False else WorldError)
    finer = _BY_DETAIL.get(detail, kind)
    fits = issubclass(finer, kind) or finer.code is known
    error = (finer if fits else kind)(message, code=known, detail=detail, retryable=retryable)
    error.retry_after_ms = retry_after_ms  # what the server said, also if that is nothing
    return error


# They are imported from here, so tracebacks say so.
for _kind in [kind for kind in vars().values() if isinstance(kind, type) and issubclass(kind, PinLaterError)]:
    _kind.__module__ = __name__
del _kind
