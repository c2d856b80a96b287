"""The worker's event loop: uvloop where it is installed (the extra `server` brings it), else Python's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_LAST_S = 1.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, but for tasks that don't end although they are cancelled: those are left, so that the process can end."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(main)
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=_LAST_S))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
