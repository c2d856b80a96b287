"""Commands that try again, with pauses that are shorter than those of users."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.client import _retries
from tests import structs as t
from tests.cli.conftest import Pinlater
from tests.client.fake_server import FakeServer


@pytest.mark.parametrize(
    ("method", "answer", "arguments"),
    [
        ("enqueueJobs", t.Enqueued(descriptors=["q:s1:p1:1"]), ("job", "enqueue", "q", "--body", "x")),
        ("dequeueJobs", t.DequeueResponse(jobs={}), ("job", "dequeue", "q")),
        ("ackJobs", [t.AckResult("q:s1:p1:1", 0)], ("job", "ack", "q:s1:p1:1")),
    ],
)
async def test_they_wait_for_shards_likewise(
    offline: Pinlater, monkeypatch: pytest.MonkeyPatch, method: str, answer: Any, arguments: tuple[str, ...]
) -> None:
    """More refusals than the retries of a client."""
    monkeypatch.setattr(_retries, "_PAUSE_MAX_S", 0.01)
    left = [t.PinLaterException(501, "Unable to find healthy shard", detail="NO_HEALTHY_SHARDS", retryable=True)] * 5

    def carry_out(_: Any) -> Any:
        if left:
            raise left.pop()
        return answer

    async with FakeServer(**{method: carry_out}) as server:
        offline.address = server.address
        done = await asyncio.to_thread(offline, *arguments)
    assert (done.code, left) == (0, [])
