"""What happens while shards run their scripts: the moments at which another server, or trouble, comes between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.writer import Writer


class ScriptHooks:
    """Runs the scripts of all shards of a test.

    `around(name, run)`: is called for each script; `run` carries it out, and what `around` returns or raises is the answer.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.around: Callable[[str, Callable[[], Awaitable[Any]]], Awaitable[Any]] = lambda _, run: run()
        for kind in (Writer, Readers):
            monkeypatch.setattr(kind, "run", self._hooked(kind.run))

    def _hooked(self, plain: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(place: object, name: str, *arguments: Any, **named: Any) -> Any:
            return await self.around(name, lambda: plain(place, name, *arguments, **named))

        return run


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> ScriptHooks:
    return ScriptHooks(monkeypatch)
