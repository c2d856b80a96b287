"""Answers that several browsers share, so that twenty open pages call the servers as often as one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple

SHARED_MS = 1_000


class _Shared(NamedTuple):
    began_ms: int
    answer: asyncio.Task[Any]


class SharedAnswers:
    """An answer is shared for a second from the beginning of its call, and not after a change that a page of this console made.

    A failure goes to those that wait for it, and is not kept.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._answers: dict[Hashable, _Shared] = {}

    async def get(self, key: Hashable, call: Callable[[], Awaitable[Any]]) -> Any:
        """Returns the answer of `call`, or a shared one. It continues if the browser that caused it disconnects."""
        now_ms = self._now_ms()
        self._answers = {each: shared for each, shared in self._answers.items() if now_ms - shared.began_ms < SHARED_MS}
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = _Shared(now_ms, asyncio.ensure_future(_awaited(call)))
            found.answer.add_done_callback(lambda answer: self._ended(key, answer))
        return await asyncio.shield(found.answer)

    def forget(self) -> None:
        """Drops the shared answers, since later pages must show a change."""
        self._answers.clear()

    def _ended(self, key: Hashable, answer: asyncio.Task[Any]) -> None:
        failed = answer.cancelled() or answer.exception() is not None
        kept = self._answers.get(key)
        if failed and kept is not None and kept.answer is answer:
            del self._answers[key]


async def _awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()
