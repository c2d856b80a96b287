"""Jobs that enqueue others while no shard is reachable, or no server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from pinlater.client import AsyncClient, ClaimedJob, Client, UniqueKey, errors
from pinlater.domain.clock import WallClock
from pinlater.domain.request_keys import REPEATED_WITHIN_MS
from pinlater.worker import Worker, WorkerSettings
from pinlater.worker.context import RUNNING, JobContext, ServerCalls
from tests import structs as t
from tests.client.fake_server import FakeServer

INFO = t.ServerInfo("9", [], "memory", 1, 1, 3, 1, 1, 1, 1, 1)
STORED = t.Enqueued(descriptors=["q:s1:p1:1"])
AWAY = t.PinLaterException(502, "Shard 2 is unreachable", detail="SHARD_UNREACHABLE", retryable=True)
LOST = FakeServer.HANG_UP
TIMEOUT_S, KNOWN_S = 10.0, REPEATED_WITHIN_MS / 1000


def running_job() -> JobContext:
    def no_body(value: Any, method: str) -> bytes:
        raise NotImplementedError

    return JobContext(ClaimedJob("q:s1:p1:7", "q", b""), "charge", ServerCalls(lambda: 0), no_body)


class Try(NamedTuple):
    """An enqueue that the server got: its request key, numbered in their order, and whether it says that it is a repeat."""

    key: int
    repeated: bool | None


class Story:
    """Answers enqueues one after the other; a callable among the answers happens before the next one."""

    def __init__(self, *answers: Any, retries: int = 0, **of_client: Any) -> None:
        self.later_s = 0.0
        self.clock = WallClock(time.time, lambda: time.monotonic() + self.later_s)
        self.job = running_job()
        self.tries: list[Try] = []
        self._answers = list(answers)
        self._keys: list[str] = []
        self._of_client = {"retries": retries, "timeout_ms": round(TIMEOUT_S * 1000), **of_client}

    def _enqueue(self, arguments: Any) -> Any:
        request = arguments.request
        if request.request_key not in self._keys:
            self._keys.append(request.request_key)
        self.tries.append(Try(self._keys.index(request.request_key), request.repeated))
        answer = self._answers.pop(0)
        while callable(answer):
            answer(self)
            answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def tell(self, *, in_job: bool = True, unique: UniqueKey | None = None) -> Sequence[Try]:
        """Enqueues one job, in a running job."""
        worker = Worker(settings=WorkerSettings(auto_create=False))

        @worker.task("q")
        async def ship(order: int) -> None: ...

        RUNNING.set(self.job if in_job else None)
        async with FakeServer(getServerInfo=lambda _: INFO, enqueueJobs=self._enqueue) as server:
            client = Client(server.address, **self._of_client)
            with worker.redirected(client, AsyncClient, self.clock):
                await ship.using(unique=unique).enqueue_async(7)
        return self.tries


def after(seconds: float) -> Callable[[Story], None]:
    def turn(story: Story) -> None:
        story.later_s += seconds

    return turn


def the_worker_gives_the_job_up(story: Story) -> None:
    story.job.is_over = True


async def test_an_enqueue_of_a_running_job_waits_longer_than_its_client(caplog: pytest.LogCaptureFixture) -> None:
    """Its client gives up at once here, as another does at its deadline."""
    caplog.set_level(logging.INFO, "pinlater.worker")
    assert len(await Story(AWAY, AWAY, AWAY, STORED).tell()) == 4
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "job q:s1:p1:7 waits for its enqueue on queue q: Shard 2 is unreachable"),
        ("INFO", "no job waits for its enqueue any more"),
    ]


async def test_a_lost_enqueue_whose_repeats_are_refused_is_repeated_under_its_key() -> None:
    """The client gives up after three repeats here; the jobs may be stored by then."""
    tries = await Story(LOST, *[AWAY] * 5, STORED, retries=3, wait_for_servers=False).tell()
    assert tries == [Try(0, None), *[Try(0, True)] * 6]


async def test_an_enqueue_outside_of_a_job_raises() -> None:
    with pytest.raises(errors.ShardConnectionFailed):
        await Story(AWAY, STORED).tell(in_job=False)


async def test_after_a_refusal_the_request_is_a_new_one() -> None:
    assert await Story(AWAY, after(3_600), AWAY, STORED).tell() == [Try(0, None), Try(1, None), Try(2, None)]


async def test_what_may_be_stored_is_repeated_while_its_key_is_known_and_then_raised() -> None:
    story = Story(LOST, after(KNOWN_S - TIMEOUT_S - 4), AWAY, after(4), AWAY)
    with pytest.raises(errors.ShardConnectionFailed):
        await story.tell()  # the client may take its whole time until it sends the repeat
    assert story.tries == [Try(0, None), Try(0, True), Try(0, True)]


async def test_jobs_with_unique_keys_wait_longer_than_a_request_key_lasts() -> None:
    tries = await Story(LOST, after(KNOWN_S), AWAY, STORED).tell(unique=UniqueKey("k"))
    assert tries == [Try(0, None), Try(0, True), Try(1, None)]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (t.PinLaterException(500, "full", detail="QUEUE_FULL", retryable=True), errors.QueueFull),
        (
            t.PinLaterException(413, "Queue not found: q", detail="QUEUE_NOT_FOUND", retryable=False),
            errors.QueueNotFound,
        ),
        (t.PinLaterException(503, "busy", detail="TOO_MANY_WAITING", retryable=True), errors.TooManyWaiting),
    ],
)
async def test_other_refusals_are_raised(refusal: Exception, error: type[Exception]) -> None:
    story = Story(refusal, STORED)
    with pytest.raises(error):
        await story.tell()
    assert len(story.tries) == 1


async def test_a_job_that_the_worker_has_given_up_waits_no_longer() -> None:
    """Its thread can't be stopped from outside."""
    with pytest.raises(errors.ShardConnectionFailed):
        await Story(the_worker_gives_the_job_up, AWAY, STORED).tell()
