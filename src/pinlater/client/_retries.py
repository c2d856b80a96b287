"""When a call that failed is made again, and after how long. Plain decisions; `_engine` acts on them.

A call that was not sent, or that a server refused because it is stopping, took no effect: it goes to the next server whatever it
is, and is tried until its deadline. So is a call that a server refused because a shard is unreachable, if a repeat is safe: it is a look
or a setting, or the answer proves that nothing was done. A call whose answer did not come may have taken effect: it is made again only
if that changes nothing (a look, a setting, an enqueue that carries a request key), and a bounded number of times.

Other refusals are raised at once, because seconds do not change them (invalid input, a full queue or store, a drained rate limit), or
because the server has too much to do (TooManyWaiting): there the caller must slow down, and not its client repeat.
"""

from __future__ import annotations

from enum import Enum

from pinlater.client.errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    EnqueueRejected,
    NoHealthyShards,
    OutcomeUnknown,
    PinLaterError,
    RequestTooOld,
    ServerUnreachable,
    ShardConnectionFailed,
    ShardRefused,
    TooManyWaiting,
)
from pinlater.domain import request_keys

_PAUSE_FIRST_S, _PAUSE_MAX_S, _HINT_MAX_S = 0.05, 1.0, 2.0
_CONNECTION_ENDS = frozenset({"TOO_MANY_CONNECTIONS", "CONNECTION_QUOTA_EXCEEDED"})
_NOTHING_DONE = frozenset(
    {NoHealthyShards.detail, ShardConnectionFailed.detail, ShardRefused.detail, RequestTooOld.detail}
)


class Resend(Enum):
    """Whether a call may be made again after it may have taken effect."""

    NEVER = "never"
    SAFE = "safe"  # twice is the same as once
    KEYED = "keyed"  # the server tells it from a new one by its request key


class Again(Enum):
    """What to do about a failed call."""

    NO = "no"
    AS_IT_WAS = "as it was"  # it took no effect
    AS_A_REPEAT = "as a repeat"  # it may have


def is_lost(error: PinLaterError) -> bool:
    """Whether the call was sent and its outcome is unknown."""
    return isinstance(error, ConnectionLost | DeadlineExceeded)


def outcome_is_unknown(error: PinLaterError | None) -> bool:
    """Whether an enqueue that failed so may have been stored; other errors that are worth a repeat say that nothing was."""
    return isinstance(error, ConnectionLost | DeadlineExceeded | OutcomeUnknown)


def is_outage(error: PinLaterError) -> bool:
    """Whether a server refused the call because it can't use the shards that the call needs, which may pass within seconds."""
    unknown = isinstance(error, OutcomeUnknown)
    return isinstance(error, NoHealthyShards | ShardConnectionFailed) and error.retryable and not unknown


def has_done_nothing(error: PinLaterError, all_or_nothing: bool) -> bool:
    """Whether this try of a call surely took no effect, so that its next try is no repeat.

    `all_or_nothing`: an error of a shard says so of the whole call; jobs with several unique keys, for example, go to several shards, of
    which one may have stored its jobs. An original server's error has no detail, and says so of nothing.
    """
    return is_unsent(error) or (all_or_nothing and is_outage(error) and error.detail in _NOTHING_DONE)


def may_be_stored(error: BaseException, all_or_nothing: bool) -> bool:
    """Whether an enqueue that ended so may have stored jobs. `all_or_nothing`: as for `has_done_nothing`."""
    if isinstance(error, CallerError | TooManyWaiting):
        return False
    if not isinstance(error, PinLaterError):
        return True
    return not (has_done_nothing(error, all_or_nothing) or (all_or_nothing and isinstance(error, EnqueueRejected)))


def was_refused(error: PinLaterError) -> bool:
    """Whether a server refused the call because it is stopping; another server may do it."""
    return error.detail == "DRAINING"


def ends_connection(error: PinLaterError) -> bool:
    """Whether the server closes the connection after this answer, since there are too many."""
    return error.detail in _CONNECTION_ENDS


def is_unsent(error: PinLaterError) -> bool:
    """Whether this try took no effect: no server got it, or one that did is stopping."""
    return isinstance(error, ServerUnreachable) or was_refused(error)


def decide(resend: Resend, error: PinLaterError, failures: int, retries: int, *, all_or_nothing: bool = False) -> Again:
    """What to do after a failure. `failures`: how many count against `retries`, this one included."""
    if failures > retries:
        return Again.NO
    if has_done_nothing(error, all_or_nothing):
        return Again.AS_IT_WAS
    if resend is Resend.NEVER:
        return Again.NO
    if is_lost(error) or isinstance(error, OutcomeUnknown) or is_outage(error):
        return Again.AS_A_REPEAT
    return Again.NO


def passes_by_waiting(error: PinLaterError) -> bool:
    """Whether a call that may be repeated is tried until its deadline, and not only `retries` times."""
    return is_unsent(error) or is_outage(error)


def repeats_end_at(began_at: float) -> float:
    """Until when an enqueue that began at `began_at` (seconds) may be repeated: its key must not be forgotten before that is done."""
    return began_at + request_keys.REPEATED_WITHIN_MS / 1000


def give_up_at(now: float, end: float) -> float:
    """When to give up a try that is made at `now`, if others must be possible until `end`: each gets half of the time that is left."""
    return now + (end - now) / 2


def pause_s(failures: int, retry_after_ms: int | None, other_servers: bool, spread: float) -> float:
    """How long to wait before the next try. `spread` in [0, 1) keeps clients from returning as one.

    The first try after a failure is made at once if there is another server; a server's own hint counts if there is none.
    """
    if other_servers and failures == 1:
        return 0.0
    longest = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 4.0 ** min(failures - 1, 6))
    hint = 0.0 if other_servers or retry_after_ms is None else min(_HINT_MAX_S, retry_after_ms / 1000)
    return max(hint * (1 + spread / 4), longest * (0.5 + spread / 2))
