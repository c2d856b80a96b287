"""Fixtures of the client's tests."""

from __future__ import annotations

import asyncio

import pytest


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of a client between its tries, which take no time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def at_once(delay: float) -> None:
        if delay:
            made.append(delay)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", at_once)
    return made
