"""When a call that failed is made again, and after how long. Plain decisions; `_engine` acts on them.

A call that was not sent, or that a server refused because it is stopping, took no effect: it goes to the next server whatever it
is, and is tried until its deadline. One whose answer did not come may have taken effect: it is made again only if that changes
nothing (a look, a setting, an enqueue that carries a request key).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from pinlater.client.errors import (
    ConnectionLost,
    DeadlineExceeded,
    NoHealthyShards,
    OutcomeUnknown,
    PinLaterError,
    RequestTooOld,
    ServerUnreachable,
    ShardConnectionFailed,
    ShardRefused,
)
from pinlater.domain.request_keys import REPEATED_WITHIN_MS
from pinlater.wire.generated.ttypes import PinLaterJob

_PAUSE_FIRST_S, _PAUSE_MAX_S, _HINT_MAX_S = 0.05, 1.0, 2.0
_REPEATED_WITHIN_S = REPEATED_WITHIN_MS / 1000
_NOTHING_STORED_BY_THE_SHARD = frozenset({ShardConnectionFailed.detail, ShardRefused.detail, RequestTooOld.detail})


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


def has_stored_nothing(error: PinLaterError, jobs: Sequence[PinLaterJob]) -> bool:
    """Whether an enqueue of these jobs that failed so has surely stored none of them, so that its next try is no repeat.

    The server of a repeat has to ask all shards, and refuses if one is unreachable. Jobs with several unique keys go to several
    shards, of which one may have stored its jobs; an original server's error has no detail.
    """
    refused = isinstance(error, NoHealthyShards) or error.detail in _NOTHING_STORED_BY_THE_SHARD
    return refused and len({job.uniqueKey for job in jobs}) == 1


def was_refused(error: PinLaterError) -> bool:
    """Whether a server refused the call because it is stopping; another server may do it."""
    return error.detail == "DRAINING"


def is_unsent(error: PinLaterError) -> bool:
    """Whether this try took no effect: no server got it, or one that did is stopping."""
    return isinstance(error, ServerUnreachable) or was_refused(error)


def decide(resend: Resend, error: PinLaterError, failures: int, retries: int) -> Again:
    """What to do after a failure. `failures`: how many count against `retries`, this one included."""
    if failures > retries:
        return Again.NO
    if is_unsent(error):
        return Again.AS_IT_WAS
    if resend is Resend.NEVER:
        return Again.NO
    if is_lost(error) or isinstance(error, NoHealthyShards | ShardConnectionFailed):
        return Again.AS_A_REPEAT
    return Again.NO


def repeats_end_at(began_at: float) -> float:
    """Until when an enqueue that began at `began_at` (seconds) may be repeated: its key must not be forgotten before that is done."""
    return began_at + _REPEATED_WITHIN_S


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
    return max(hint, longest * (0.5 + spread / 2))
