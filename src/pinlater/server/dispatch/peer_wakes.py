"""Servers of the same shards wake each other's waiting dequeues: one server stores an enqueue while a dequeue waits at another.

A wake names a queue and a number of jobs, nothing about the jobs themselves, and tells whether the server that owns the queue may not
know of them. It is sent over the connection to the other server, after the commit, and no call waits for it. A wake that is lost, because
its connection ends or the other server does not read, costs the wait for the next look (`change_poller`), about a second.

Enqueues within a few milliseconds share a message, so that a busy server sends a few hundred messages a second instead of one a job. A
server gets wakes only for queues for which its dequeues wait, according to its reports (`interest.py`); jobs that arrived less than a
second before such a report are announced then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from pinlater.server.cluster.forwarding.messages import WAKES_MAX, Wake
from pinlater.server.dispatch.interest import bit_of

GAP_S = 0.002
# A server's message about its dequeues arrives within this time. Jobs that arrived meanwhile are announced after it.
_NEW_S = 1.0
_QUEUES_MAX = 20_000


class WakeLink(Protocol):
    """A connection to another server."""

    def wake(self, wakes: Sequence[Wake]) -> bool:
        """Reports at most `WAKES_MAX` queues to it, without delay. Returns whether the message was written."""


class PeerWakes:
    """The wakes of one server, to and from others. `wake(queue, jobs, past_owner)` is called for each queue that another server named."""

    def __init__(self, wake: Callable[[str, int, bool], None]) -> None:
        self._wake = wake
        self.has_peers = False
        """Whether there are other servers: some may not be connected yet."""
        self._waits: dict[WakeLink, int] = {}  # the queues for which the dequeues of each server wait
        self._waited_for = 0  # anywhere
        self._waiting: dict[str, int] = {}
        self._past_owner: set[str] = set()  # queues among these whose owner may not know of the jobs
        # By queue: until when its last jobs count as new, and their number.
        self._lately: dict[str, tuple[float, int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.sent = 0
        self.received = 0

    def close(self) -> None:
        """Sends nothing from now on."""
        self._waits, self._waited_for, self.has_peers = {}, 0, False
        if self._timer is not None:
            self._timer.cancel()

    def know_waits(self, link: WakeLink, bits: int | None) -> None:
        """Sets the queues for which the dequeues of a server wait (None: it is no longer connected). Sends it the wakes that it missed
        meanwhile."""
        begun = (bits or 0) & ~self._waits.get(link, 0)
        if bits is None:
            self._waits.pop(link, None)
        else:
            self._waits[link] = bits
        self._waited_for = 0
        for waits in self._waits.values():
            self._waited_for |= waits
        if begun:
            now_s = asyncio.get_running_loop().time()
            missed = {queue: jobs for queue, (until_s, jobs) in self._lately.items() if now_s < until_s}
            self._send_to(link, begun, missed, missed)  # it is no longer known whether the owner knows of them

    def tell(self, queue: str, jobs: int, past_owner: bool = False) -> None:
        """Tells other servers that `jobs` jobs of this queue can be claimed: at once, or within `GAP_S` together with other queues.

        `past_owner`: the server that owns the queue may not know of them.
        """
        if not self.has_peers:
            return
        now_s = asyncio.get_running_loop().time()
        until_s, before = self._lately.get(queue, (0.0, 0))
        if len(self._lately) >= _QUEUES_MAX:
            self._lately.clear()
        self._lately[queue] = (now_s + _NEW_S, jobs + before if now_s < until_s else jobs)
        if self._waited_for & bit_of(queue):
            self._waiting[queue] = self._waiting.get(queue, 0) + jobs
            if past_owner:
                self._past_owner.add(queue)
            if self._timer is None:
                self._send()

    def _send(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        told, past_owner = self._waiting, self._past_owner
        self._waiting, self._past_owner = {}, set()
        self._timer = asyncio.get_running_loop().call_later(GAP_S, self._send)
        for link, waits in self._waits.items():
            self._send_to(link, waits, told, past_owner)

    def _send_to(self, link: WakeLink, waits: int, told: Mapping[str, int], past_owner: Collection[str]) -> None:
        wakes = [Wake(queue, jobs, queue in past_owner) for queue, jobs in told.items() if waits & bit_of(queue)]
        for start in range(0, len(wakes), WAKES_MAX):
            self.sent += link.wake(wakes[start : start + WAKES_MAX])

    def take(self, wakes: Sequence[Wake]) -> None:
        """Takes wakes from another server."""
        self.received += 1
        for queue, jobs, past_owner in wakes:
            self._wake(queue, jobs, past_owner)
