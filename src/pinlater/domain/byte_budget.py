"""One count of the bytes in flight on a server: requests not answered yet, answers not sent yet, and scans under way.

Each kind has bounds of its own for one connection or call; this is the bound for all of them together. Nothing ever waits for the budget,
so it can't cause a deadlock: a request that doesn't fit is refused with an error, and its caller may retry.

Only the event loop's thread uses it. Hot paths add to and compare plain attributes.

Weakness: it counts bytes of frames, answers and pages, not of Python objects. Requests that are decoded take more than their frame.
"""

from __future__ import annotations

from typing import Protocol

SMALL_FRAME_BYTES = 16 * 1024
_RESERVED_SHARE = 4  # a quarter of the limit, beyond it


class BytesInFlight(Protocol):
    """The counter of the parts of a connection: the budget, or a counter for one token and the budget together."""

    free_bytes: int

    @property
    def exhausted(self) -> bool: ...

    def hold_answer(self, more_bytes: int) -> None: ...


class ByteBudget:
    """Bytes held, and bytes free, of `limit_bytes`.

    A reserve of a quarter beyond the limit keeps a full server usable: it is for small requests of callers that have nothing else under
    way (acks, heartbeats), and for answers that already exist. When the reserve is used up, connections are closed.
    """

    __slots__ = ("_reserve_bytes", "answer_bytes", "free_bytes", "limit_bytes", "scan_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.free_bytes = limit_bytes  # below 0 within the reserve
        self.answer_bytes = 0
        self.scan_bytes = 0
        self._reserve_bytes = limit_bytes // _RESERVED_SHARE

    # --- requests: hot paths change `free_bytes` themselves ---------------------------------------------------------------
    @property
    def request_bytes(self) -> int:
        """The bytes of whole or partial frames that are not answered yet."""
        return self.limit_bytes - self.free_bytes - self.answer_bytes - self.scan_bytes

    def admits(self, frame_bytes: int, *, alone: bool) -> bool:
        """Returns whether a frame that has been counted may stay. `alone`: its connection has no other request under way."""
        if self.free_bytes >= 0:
            return True
        return alone and frame_bytes <= SMALL_FRAME_BYTES and not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether the reserve is used up as well."""
        return self.free_bytes < -self._reserve_bytes

    @property
    def scarce(self) -> bool:
        """Whether more than half is in use, so that connections without progress should be closed."""
        return self.free_bytes < self.limit_bytes // 2

    # --- answers ------------------------------------------------------------------------------------------------------------
    def hold_answer(self, more_bytes: int) -> None:
        """Counts bytes of answers that the kernel has not accepted yet; a negative number subtracts them."""
        self.answer_bytes += more_bytes
        self.free_bytes -= more_bytes

    # --- scans --------------------------------------------------------------------------------------------------------------
    def reserve_scan(self, size_bytes: int) -> int:
        """Reserves the memory that a call may need for pages and its answer. Returns 0 if there is no space for it now.

        Reserves the whole limit for a call that needs more, so that such a call runs alone instead of never. Pass the result to
        `free_scan` afterwards.
        """
        wanted = min(size_bytes, self.limit_bytes)
        if wanted > self.free_bytes:
            return 0
        self.scan_bytes += wanted
        self.free_bytes -= wanted
        return wanted

    def free_scan(self, size_bytes: int) -> None:
        """Frees what `reserve_scan` reserved."""
        self.scan_bytes -= size_bytes
        self.free_bytes += size_bytes

    def by_kind(self) -> dict[str, float]:
        """Returns the bytes held now, for the metrics."""
        return {"requests": self.request_bytes, "answers": self.answer_bytes, "scans": self.scan_bytes}
