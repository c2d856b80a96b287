"""Waits for work until an event interrupts the wait."""

from __future__ import annotations

import asyncio
from typing import Any


async def ends_before(task: asyncio.Task[Any], event: asyncio.Event) -> bool:
    """Waits until the task ends or the event is set. Returns whether the task has ended; its exception is left in it."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return task.done()
