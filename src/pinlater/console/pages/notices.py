"""Keeps the results of actions, from a form until the page that reports them. A bounded number is kept in memory; a discarded one is not
shown."""

from __future__ import annotations

from typing import NamedTuple

KEPT_MAX = 500


class Notice(NamedTuple):
    """What a page tells. `job`: the descriptor of a job to which it links; '' for none."""

    text: str = ""
    job: str = ""


class Notices:
    """Messages by a name that a redirect carries. So a link of another site can't make a page show a message."""

    def __init__(self) -> None:
        self._kept: dict[str, Notice] = {}
        self._number = 0

    def keep(self, notice: Notice, now_ms: int) -> str:
        """Keeps the notice. Returns its name."""
        self._number += 1
        name = f"{now_ms:x}-{self._number}"
        self._kept[name] = notice
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return name

    def find(self, name: str) -> Notice:
        """The message; an empty one if it is not kept."""
        return self._kept.get(name, _NONE)


_NONE = Notice()
