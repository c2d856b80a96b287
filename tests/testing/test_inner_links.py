"""Clients of an in-process service with options of their own, a short deadline or no retries: `async_client` gives the usual ones."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinlater import AsyncClient
from pinlater.client.errors import ConnectionLost, DeadlineExceeded, ServerUnreachable
from pinlater.testing import InProcessService


async def test_a_long_poll_ends_by_the_real_deadline_of_the_client_if_the_clock_stands(
    pinlater_service: InProcessService,
) -> None:
    """A test that forgets to turn the clock fails, and doesn't hang."""
    service = pinlater_service
    service.client.create_queue("q")
    client = AsyncClient("in-process:1", clock=service.clock, connect=service._connect, timeout_ms=50, retries=0)
    async with client:
        with pytest.raises(DeadlineExceeded):
            await client.dequeue("q", wait_ms=50)


async def test_a_closed_service_is_unreachable_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    service = InProcessService()
    service.client.create_queue("q")
    other = AsyncClient("in-process:1", connect=service._connect, retries=0)
    async with other:
        polling = asyncio.create_task(other.dequeue("q", wait_ms=20_000))
        async with asyncio.timeout(30):
            while not service.client.queue_stats("q")[0].waiting_dequeues:
                await asyncio.sleep(0.001)
        service.close()
        service.close()
        assert (await polling).jobs == []
        with pytest.raises((ServerUnreachable, ConnectionLost)):
            await other.enqueue("q", [b""])
    service.clock.advance(hours=1)
    assert not set(threading.enumerate()) - before
