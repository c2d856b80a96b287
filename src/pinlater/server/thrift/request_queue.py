"""The requests of one connection that are not begun: whole ones, in order, and the bytes of the frame that is being received.

All of them are counted in the server's budget until they are answered or discarded. If a request may not stay, its beginning is kept, so
that it is answered with an error in its turn. Knows no sockets, and does not decide which requests stay: `connection.py` does.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from pinlater.domain.byte_budget import BytesInFlight
from pinlater.server.thrift.settings import ThriftSettings

HEAD_BYTES = 512  # of a frame that is discarded: enough to know which call to answer
QUEUED_BYTES = 200  # bytes that a request takes while it waits, beside its frame
# A connection is read up to this many times the bound on bytes that wait, refusals counted.
PIPELINED_WHILE_REFUSING = 2


_new_tuple = tuple.__new__  # for each request: half of what the named tuple's own constructor costs


class QueuedRequest(NamedTuple):
    """A whole frame. `counted_bytes`: what the budget counts for it."""

    arrived_s: float
    frame: bytes
    counted_bytes: int


class RefusedRequest(NamedTuple):
    """The beginning of a frame whose rest was discarded: its call is answered with an error."""

    arrived_s: float
    head: bytes
    counted_bytes: int


class OverQuotaRequest(NamedTuple):
    """Like `RefusedRequest`, for a frame for which the quota of its token had no space. `frame_bytes`: how long the frame was."""

    arrived_s: float
    head: bytes
    counted_bytes: int
    frame_bytes: int


AnyRequest = QueuedRequest | RefusedRequest | OverQuotaRequest


def refused(head: bytes, arrived_s: float) -> RefusedRequest:
    """The request of a frame that may not stay, from its beginning or the whole frame."""
    head = head[:HEAD_BYTES]
    return RefusedRequest(arrived_s, head, len(head) + QUEUED_BYTES)


class RequestQueue:
    """The requests of one connection that are not begun: `waiting`, which only this class changes; `partial_bytes` of an incomplete frame.

    A request for which the budget has no space is `count`ed before others are asked to give way to it, then added by `append` or
    `refuse`. From `begin` to `end` a request is under way.
    """

    __slots__ = ("_budget", "_settings", "partial_bytes", "partial_since_s", "queued_bytes", "waiting")

    def __init__(self, budget: BytesInFlight, settings: ThriftSettings) -> None:
        self._budget = budget
        self._settings = settings
        self.waiting: deque[AnyRequest] = deque()
        self.queued_bytes = 0
        self.partial_bytes = 0
        self.partial_since_s = 0.0

    def count_in(self, budget: BytesInFlight) -> None:
        """Counts the bytes there from now on. The bytes that it holds must already be counted there."""
        self._budget = budget

    @property
    def oldest_arrived_s(self) -> float:
        """When the next request arrived. There must be one."""
        return self.waiting[0].arrived_s

    def is_full(self, *, refusing: bool) -> bool:
        """Whether to stop reading while a request is under way. `refusing`: all new requests are refused."""
        settings, held_bytes = self._settings, self.queued_bytes + self.partial_bytes
        if refusing:
            return held_bytes >= PIPELINED_WHILE_REFUSING * settings.max_pipelined_bytes or self._budget.exhausted
        return (
            len(self.waiting) >= settings.max_pipelined_requests
            or held_bytes >= settings.max_pipelined_bytes
            or self._budget.free_bytes < 0
        )

    # --- whole frames -----------------------------------------------------------------------------------------------------
    def add(self, frame: bytes, now_s: float) -> bool:
        """Adds a request if the budget has space for it; returns whether it has."""
        counted_bytes, budget = len(frame) + QUEUED_BYTES, self._budget
        if counted_bytes > budget.free_bytes:
            return False
        budget.free_bytes -= counted_bytes
        self.queued_bytes += counted_bytes
        self.waiting.append(_new_tuple(QueuedRequest, (now_s, frame, counted_bytes)))
        return True

    def count(self, frame: bytes, now_s: float) -> QueuedRequest:
        """The request of a frame, counted in the budget, which may be overdrawn then."""
        request = QueuedRequest(now_s, frame, len(frame) + QUEUED_BYTES)
        self._budget.free_bytes -= request.counted_bytes
        return request

    def append(self, request: QueuedRequest) -> None:
        """Adds a request that was counted."""
        self.queued_bytes += request.counted_bytes
        self.waiting.append(request)

    def refuse(self, request: QueuedRequest) -> None:
        """Adds only the beginning of a request that was counted."""
        self._budget.free_bytes += request.counted_bytes
        self._append_refused(refused(request.frame, request.arrived_s))

    def _append_refused(self, request: RefusedRequest | OverQuotaRequest) -> None:
        self._budget.free_bytes -= request.counted_bytes
        self.queued_bytes += request.counted_bytes
        self.waiting.append(request)

    def begin(self) -> AnyRequest:
        """Removes the next request. It stays counted in the budget until `end`."""
        request = self.waiting.popleft()
        self.queued_bytes -= request.counted_bytes
        return request

    def end(self, request: AnyRequest) -> None:
        """The request under way has its answer, or gets none."""
        self._budget.free_bytes += request.counted_bytes

    # --- the frame that is being received ---------------------------------------------------------------------------------
    def hold_partial(self, partial_bytes: int, now_s: float) -> int:
        """Counts the received bytes of an incomplete frame. Returns how many bytes more that is than before."""
        more_bytes = partial_bytes - self.partial_bytes
        if not self.partial_bytes:
            self.partial_since_s = now_s
        self.partial_bytes = partial_bytes
        self._budget.free_bytes -= more_bytes
        return more_bytes

    def free_partial(self) -> None:
        """The frame is complete, or was discarded."""
        self._budget.free_bytes += self.partial_bytes
        self.partial_bytes = 0

    def refuse_partial(self, head: bytes, now_s: float) -> None:
        """The frame was discarded; its beginning is kept."""
        self.free_partial()
        self._append_refused(refused(head, now_s))

    def refuse_over_quota(self, head: bytes, frame_bytes: int, now_s: float) -> None:
        """The same, because of a quota."""
        self.free_partial()
        self._append_refused(OverQuotaRequest(*refused(head, now_s), frame_bytes))

    # --- giving way -------------------------------------------------------------------------------------------------------
    def shed(self) -> None:
        """Discards the frames of whole requests, except for their beginnings."""
        requests = self.waiting
        for index, request in enumerate(requests):
            if isinstance(request, QueuedRequest) and len(request.frame) > HEAD_BYTES:
                requests[index] = kept = refused(request.frame, request.arrived_s)
                freed_bytes = request.counted_bytes - kept.counted_bytes
                self.queued_bytes -= freed_bytes
                self._budget.free_bytes += freed_bytes

    def clear(self) -> None:
        """Gives up all requests without an answer."""
        self._budget.free_bytes += self.queued_bytes + self.partial_bytes
        self.queued_bytes = self.partial_bytes = 0
        self.waiting.clear()
