"""Classifies the failure of a shard, for callers that may not see its text, which may name users, hosts and files."""

from __future__ import annotations

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed

TIMEOUT, REFUSED, CONNECTION, INTERNAL = "timeout", "refused", "connection", "internal"
"""The kinds: no answer in time; a refusal of this server, which an operator has to look at; another failure of its connection or a call;
a bug."""


class NoAnswerInTime(ShardConnectionFailed):
    """The shard took too long for a call that changes nothing."""


def failure_kind(error: Exception, *, timed_out: bool = False) -> str:
    """The kind of a failed call or probe. `timed_out`: it was given up."""
    if not isinstance(error, PinLaterError):
        return INTERNAL
    if timed_out or isinstance(error, NoAnswerInTime):
        return TIMEOUT
    return CONNECTION if error.retryable else REFUSED
