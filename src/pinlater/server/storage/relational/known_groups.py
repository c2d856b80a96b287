"""The groups of failures of a queue, as a server remembers them."""

from __future__ import annotations

from pinlater.domain.failures import GROUPS_MAX

_LOOK_MS = 60_000


class KnownGroups:
    """The groups of a queue as this server last saw them."""

    __slots__ = ("looked_ms", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.looked_ms: int | None = None

    def may_have_changed(self, now_ms: int) -> bool:
        """Returns whether a read may find others: only a full set is not read each time."""
        if self.looked_ms is None or len(self.names) < GROUPS_MAX:
            return True
        return now_ms - self.looked_ms >= _LOOK_MS
