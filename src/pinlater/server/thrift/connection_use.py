"""The use of quotas by one connection: its bytes in flight, and itself.

Both count for the token of its latest request. A token whose quota is used up takes over a connection that is open for another token,
such as those that callers of a console share, up to a bound; beyond it, the connection still counts for the other token. So each open
connection counts for one token, and no caller is refused over a connection that is open anyway.
"""

from __future__ import annotations

from pinlater.domain.byte_budget import ByteBudget
from pinlater.server.access.quotas import TokenUse


class ConnectionUse:
    """Counts for one connection. It counts its parts, as the server's budget does, and passes everything on to the budget.

    `token`: the token for which its bytes count. `counts_for`: the token for which the connection counts; None for none. `is_beyond`: it
    is beyond the quota of that token. `reports_only`: it may also carry only reports of workers.
    """

    __slots__ = ("_budget", "_ended", "bytes_held", "counts_for", "is_beyond", "reports_only", "token")

    def __init__(self, budget: ByteBudget, token: TokenUse, bytes_held: int, *, ended: bool) -> None:
        """`bytes_held`: what the budget already counts for the connection. `ended`: it is closed, and only its last request continues."""
        self._budget = budget
        self._ended = ended
        self.token = token
        self.bytes_held = bytes_held
        self.counts_for: TokenUse | None = None
        self.is_beyond = self.reports_only = False
        token.bytes_held += bytes_held

    # --- bytes: `domain.byte_budget.BytesInFlight` ------------------------------------------------------------------------
    @property
    def free_bytes(self) -> int:
        """The free bytes of the server's budget: a quota refuses requests in their turn, and does not stop the reading of a connection."""
        return self._budget.free_bytes

    @free_bytes.setter
    def free_bytes(self, free_bytes: int) -> None:
        self._count(self._budget.free_bytes - free_bytes)
        self._budget.free_bytes = free_bytes

    @property
    def exhausted(self) -> bool:
        return self._budget.exhausted

    def hold_answer(self, more_bytes: int) -> None:
        self._count(more_bytes)
        self._budget.hold_answer(more_bytes)

    def _count(self, more_bytes: int) -> None:
        self.bytes_held += more_bytes
        self.token.bytes_held += more_bytes

    def move_bytes(self, token: TokenUse) -> None:
        """From now on the bytes count for that token."""
        self.token.bytes_held -= self.bytes_held
        token.bytes_held += self.bytes_held
        self.token = token

    # --- the connection ---------------------------------------------------------------------------------------------------
    def takes(self, *, is_report: bool) -> bool:
        """Whether the connection may carry a request of `token`, for which it then counts."""
        token, counted_for = self.token, self.counts_for
        if self._ended or (counted_for is token and not self.is_beyond):
            return True
        if token.takes_connection():
            self._leave()
            token.connections += 1
            self.counts_for = token
            return True
        reports_only = self.reports_only or counted_for is None
        if reports_only and not is_report:
            return False
        if counted_for is not token and token.takes_connection_beyond():
            self._leave()
            token.connections_beyond += 1
            self.counts_for, self.is_beyond, self.reports_only = token, True, reports_only
        return self.counts_for is not None

    def take(self) -> None:
        """Counts the connection for its token, even beyond the quota: it was open before connections were counted."""
        if not self._ended:
            self.token.connections += 1
            self.counts_for = self.token

    def end(self) -> None:
        """The connection is closed, and no longer counts. A request under way still does."""
        self._leave()
        self._ended = True

    def _leave(self) -> None:
        if self.counts_for is not None:
            if self.is_beyond:
                self.counts_for.connections_beyond -= 1
            else:
                self.counts_for.connections -= 1
        self.counts_for, self.is_beyond, self.reports_only = None, False, False
