"""Jobs that enqueue others while no shard is reachable, or no server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from pinlater.client import AsyncClient, ClaimedJob, Client, _job_calls, _retries, errors
from pinlater.client._client_call import ClientCall
from pinlater.client.values import Job, UniqueKey
from pinlater.domain.clock import SystemClock
from pinlater.domain.request_keys import REPEATED_WITHIN_MS
from pinlater.worker import Worker
from pinlater.worker._enqueueing.waiting_enqueue import OutageLog, WaitingEnqueue
from pinlater.worker.context import RUNNING, JobContext, ServerCalls
from tests import structs as t
from tests.client.fake_server import FakeServer

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)
STORED = t.Enqueued(descriptors=["q:s1:p1:1"])
AWAY = errors.ShardConnectionFailed("Shard 2 is unreachable")
_REFUSALS = 5
TIMEOUT_S = 10.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_retries, "_PAUSE_FIRST_S", 0.005)
    monkeypatch.setattr(_retries, "_PAUSE_MAX_S", 0.02)


def running_job() -> JobContext:
    def no_body(value: Any, method: str) -> bytes:
        raise NotImplementedError

    return JobContext(ClaimedJob("q:s1:p1:7", "q", b""), "charge", ServerCalls(lambda: 0), no_body)


def refusing(refusals: int) -> Callable[[Any], Any]:
    left = [t.PinLaterException(502, "Shard 2 is unreachable", detail="SHARD_UNREACHABLE", retryable=True)] * refusals

    def method(_: Any) -> Any:
        if left:
            raise left.pop()
        return STORED

    return method


async def test_an_enqueue_of_a_running_job_waits_longer_than_its_client(caplog: pytest.LogCaptureFixture) -> None:
    """Its client gives up at once here, as another does at its deadline."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    RUNNING.set(running_job())
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=refusing(_REFUSALS)) as server,
    ):
        client = Client(server.address, retries=0)
        worker = Worker()

        @worker.task("q")
        async def ship(order: int) -> None: ...

        with worker.redirected(client, AsyncClient, SystemClock()):
            await ship.enqueue_async(7)
    assert len(server.called("enqueueJobs")) == _REFUSALS + 1
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "job q:s1:p1:7 waits for its enqueue on queue q: Shard 2 is unreachable"),
        ("INFO", "no job waits for its enqueue any more"),
    ]


async def test_a_lost_enqueue_whose_repeats_are_refused_is_repeated_under_its_key() -> None:
    """The client gives up after three repeats here; the jobs may be stored by then."""
    seen: list[tuple[str, bool | None]] = []
    away = t.PinLaterException(502, "Shard 2 is unreachable", detail="SHARD_UNREACHABLE", retryable=True)

    def enqueue(arguments: Any) -> Any:
        seen.append((arguments.request.request_key, arguments.request.repeated))
        if len(seen) == 1:
            return FakeServer.HANG_UP
        if len(seen) <= 1 + _REFUSALS:
            raise away
        return STORED

    RUNNING.set(running_job())
    async with FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=enqueue) as server:
        client = Client(server.address, wait_for_servers=False)
        worker = Worker()

        @worker.task("q")
        async def ship(order: int) -> None: ...

        with worker.redirected(client, AsyncClient, SystemClock()):
            await ship.enqueue_async(7)
    assert len({key for key, _ in seen}) == 1
    assert [repeat for _, repeat in seen] == [None, *[True] * (1 + _REFUSALS)]


async def test_an_enqueue_outside_of_a_job_raises() -> None:
    async with (
        FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=refusing(_REFUSALS)) as server,
    ):
        client = Client(server.address, retries=0)
        worker = Worker()

        @worker.task("q")
        async def ship(order: int) -> None: ...

        with worker.redirected(client, AsyncClient, SystemClock()), pytest.raises(errors.ShardConnectionFailed):
            await ship.enqueue_async(7)


# --- decisions ----------------------------------------------------------------------------------------------------------
class Decisions:
    """One request of a running job, and a time that the test sets."""

    def __init__(self, *jobs: Job) -> None:
        self.now_s = 0.0
        self.job = running_job()
        call = _job_calls.enqueue("q", list(jobs) or [b"x"], "key 0", repeat=False)
        self.waiting = WaitingEnqueue(self.job, call, lambda: self.now_s, OutageLog(), self._renewed, TIMEOUT_S)
        self._keys = 0

    def _renewed(self, call: ClientCall[Any]) -> ClientCall[Any]:
        self._keys += 1
        return _job_calls.with_request_key(call, f"key {self._keys}")

    def next(self, error: errors.PinLaterError) -> tuple[str, bool | None]:
        """Key and repeat of the next try."""
        self.waiting.pause_s(error)
        request = self.waiting.call.args[0]
        return request.request_key, request.repeated


def test_after_a_refusal_the_request_is_a_new_one() -> None:
    decisions = Decisions()
    assert decisions.next(AWAY) == ("key 1", None)
    decisions.now_s = 3_600
    assert decisions.next(errors.ServerUnreachable("")) == ("key 2", None)


def test_what_may_be_stored_is_repeated_while_its_key_is_known_and_then_raised() -> None:
    decisions = Decisions()
    assert decisions.next(errors.OutcomeUnknown("")) == ("key 0", True)
    decisions.now_s = REPEATED_WITHIN_MS / 1000 - TIMEOUT_S - 1
    assert decisions.next(AWAY) == ("key 0", True)
    decisions.now_s += 1
    with pytest.raises(errors.ShardConnectionFailed):
        decisions.next(AWAY)  # the client may take its whole time until it sends the repeat


def test_jobs_with_unique_keys_wait_longer_than_a_request_key_lasts() -> None:
    decisions = Decisions(Job(b"x", unique=UniqueKey("k")))
    assert decisions.next(errors.ConnectionLost("")) == ("key 0", True)
    decisions.now_s = REPEATED_WITHIN_MS / 1000
    assert decisions.next(AWAY) == ("key 1", None)


@pytest.mark.parametrize("error", [errors.QueueFull(""), errors.QueueNotFound(""), errors.TooManyWaiting("")])
def test_other_refusals_are_raised(error: errors.PinLaterError) -> None:
    with pytest.raises(type(error)):
        Decisions().next(error)


def test_a_job_that_the_worker_has_given_up_waits_no_longer() -> None:
    """Its thread can't be stopped from outside."""
    decisions = Decisions()
    decisions.job.is_over = True
    with pytest.raises(errors.ShardConnectionFailed):
        decisions.next(AWAY)
