"""Calls of several requests: if a later one fails, the error says what the earlier ones changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pinlater.client import AsyncClient, Client, JobState, errors
from tests.client.fake_server import FakeServer


def in_turn(answers: Iterable[object]) -> Callable[[Any], object]:
    """A method that gives these answers."""
    left = iter(answers)
    return lambda _: next(left)


async def test_an_error_says_how_many_jobs_of_higher_priorities_were_changed() -> None:
    async with (
        FakeServer(
            retryFailedJobs=in_turn([3, 1, FakeServer.HANG_UP]), deleteJobs=in_turn([0, 1, FakeServer.HANG_UP])
        ) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        with pytest.raises(errors.ConnectionLost, match=r"; 4 jobs were retried before$"):
            await client.retry_failed("q")
        with pytest.raises(errors.ConnectionLost, match=r"; 1 job was deleted before$"):
            await client.delete_jobs("q", JobState.FAILED)


async def test_an_error_before_any_change_is_told_as_it_is() -> None:
    async with (
        FakeServer(retryFailedJobs=in_turn([0, FakeServer.HANG_UP])) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        with pytest.raises(errors.ConnectionLost) as raised:
            await client.retry_failed("q")
    assert "retried" not in raised.value.message


async def test_the_synchronous_client_says_it_too() -> None:
    async with FakeServer(deleteJobs=in_turn([2, FakeServer.HANG_UP])) as server:
        with (
            Client(server.address) as client,
            pytest.raises(errors.ConnectionLost, match=r"; 2 jobs were deleted before$"),
        ):
            await asyncio.to_thread(client.delete_jobs, "q", JobState.FAILED)
