"""What actions did, from a form until the page that tells it. A bounded number is kept in memory; an older one is not shown."""

from __future__ import annotations

KEPT_MAX = 500


class Notices:
    """Messages by a name that a redirect carries. So a link of another site can't make a page say something."""

    def __init__(self) -> None:
        self._kept: dict[str, str] = {}
        self._number = 0

    def keep(self, message: str, now_ms: int) -> str:
        """Its name."""
        self._number += 1
        name = f"{now_ms:x}-{self._number}"
        self._kept[name] = message
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return name

    def find(self, name: str) -> str:
        """The message; '' if it is not kept."""
        return self._kept.get(name, "")
