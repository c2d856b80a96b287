"""Requests with a key that this server has sent to the owner of a queue without learning their outcome.

Such a request may still be stored, for example by an owner that stands still. Only the shard can distinguish a repeat from a new request.
So a repeat goes to that shard and nowhere else, for as long as clients repeat requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from pinlater.domain.request_keys import REPEATED_WITHIN_MS

# The most calls to other servers that a server has under way; beyond that, the oldest are forgotten.
_REQUESTS_MAX = 200_000


class UnsettledRequests:
    """The unsettled requests of one server. `monotonic`: in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sent_to: OrderedDict[tuple[str, str], tuple[str, float]] = (
            OrderedDict()
        )  # shard, until when; oldest first

    def note(self, queue: str, key: str, shard: str) -> None:
        """Notes that the request may have been stored on this shard, or may still be."""
        now_s = self._monotonic()
        while self._sent_to:
            oldest, (_, until_s) = next(iter(self._sent_to.items()))
            if until_s > now_s and len(self._sent_to) < _REQUESTS_MAX:
                break
            del self._sent_to[oldest]
        self._sent_to.pop((queue, key), None)
        self._sent_to[queue, key] = shard, now_s + REPEATED_WITHIN_MS / 1000

    def settle(self, queue: str, key: str) -> None:
        """Notes that the outcome of the request is known by now."""
        if self._sent_to:
            self._sent_to.pop((queue, key), None)

    def shard_of(self, queue: str, key: str) -> str | None:
        """The shard that may have stored the request; None if there is none."""
        if not self._sent_to:
            return None
        shard, until_s = self._sent_to.get((queue, key), ("", 0.0))
        return shard if shard and until_s > self._monotonic() else None
