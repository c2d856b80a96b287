"""The service inside the test's process: the server's own rules, by a clock that the test turns."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from pinlater import Client, Job, JobState, UniqueKey, UniqueScope
from pinlater.client.errors import (
    ClientClosed,
    ConnectionLost,
    EnqueueRejected,
    PasswordInvalid,
    QueueNotFound,
)
from pinlater.client.values import Ack, Outcome, QueueConfig
from pinlater.server.operations.job_settings import JobSettings
from pinlater.testing import InProcessService, TurnedClock


@pytest.fixture
def service(pinlater_service: InProcessService) -> InProcessService:
    """With a queue `q`."""
    pinlater_service.client.create_queue("q")
    return pinlater_service


@pytest.fixture
def client(service: InProcessService) -> Client:
    return service.client


# --- a service like any other -----------------------------------------------------------------------------------------------
def test_plain_code_enqueues_claims_and_acks(client: Client) -> None:
    (descriptor,) = client.enqueue("q", [Job(b"x", headers={"a": "b"})]).descriptors
    (job,) = client.dequeue("q", 10).jobs
    assert (job.descriptor, job.body, job.headers, job.attempt) == (descriptor, b"x", {"a": "b"}, 1)
    (result,) = client.ack("q", [Ack(descriptor, token=job.token)])
    assert result.outcome is Outcome.APPLIED
    assert client.lookup([descriptor])[descriptor].state is JobState.SUCCEEDED


async def test_coroutines_do_too_and_both_see_the_same(service: InProcessService) -> None:
    async with service.async_client(source="me") as client:
        await client.enqueue("q", [b"x"])
        assert service.client.count("q") == 1
        assert [job.body for job in (await client.dequeue("q")).jobs] == [b"x"]
    (job,) = service.jobs("q", JobState.IN_PROGRESS)
    assert job.claim_descriptor is not None
    assert ":me:" in job.claim_descriptor


def test_errors_are_those_of_a_server(client: Client) -> None:
    with pytest.raises(QueueNotFound):
        client.enqueue("missing", [b""])
    with pytest.raises(PasswordInvalid):
        client.delete_queue("q", "guess")


def test_the_admin_password_and_the_settings_can_be_chosen() -> None:
    settings = JobSettings(max_backlog=1)
    with InProcessService(settings=settings, admin_password="sesame") as service:
        service.client.create_queue("q")
        service.client.enqueue("q", [b""])
        with pytest.raises(EnqueueRejected):
            service.client.enqueue("q", [b""])
        service.client.delete_queue("q", "sesame")
        assert service.client.queue_names() == []


def test_priorities_unique_keys_and_limits_hold(client: Client) -> None:
    key = UniqueKey("once")
    client.enqueue("q", [Job(b"low", priority=3), Job(b"high", priority=1), Job(b"a", unique=key)])
    again = client.enqueue("q", [Job(b"b", unique=key)])
    assert again.existing == (0,)
    assert [job.body for job in client.dequeue("q", 10).jobs] == [b"high", b"a", b"low"]
    client.enqueue("q", [b"1", b"2", b"3"])
    client.configure_queue("q", QueueConfig(max_jobs_per_second=1))
    assert len(client.dequeue("q", 1).jobs) == 1


def test_two_services_share_nothing() -> None:
    with InProcessService() as one, InProcessService() as other:
        one.client.create_queue("q")
        assert other.client.queue_names() == []


def test_threads_use_one_client_at_once(service: InProcessService) -> None:
    threads = [threading.Thread(target=service.client.enqueue, args=("q", [b"x"] * 10)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(service.jobs("q")) == 80


# --- the clock --------------------------------------------------------------------------------------------------------------
def test_time_stands_still_until_it_is_turned(service: InProcessService, pinlater_clock: TurnedClock) -> None:
    assert pinlater_clock.now == datetime(2026, 1, 1, tzinfo=UTC)
    service.client.enqueue("q", [Job(b"", run_after_ms=pinlater_clock.now_ms() + 1)])
    assert service.client.dequeue("q").jobs == []
    assert pinlater_clock.advance(ms=1) == pinlater_clock.now_ms()
    assert len(service.client.dequeue("q").jobs) == 1


def test_the_clock_takes_any_unit_and_goes_forward_only() -> None:
    clock = TurnedClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock.advance(days=1, hours=1, minutes=1, seconds=1, ms=1)
    assert clock.now == datetime(2026, 3, 2, 1, 1, 1, 1000, tzinfo=UTC)
    clock.advance_to(datetime(2026, 4, 1, tzinfo=UTC))
    assert clock.now == datetime(2026, 4, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="forward only"):
        clock.advance(seconds=-1)
    with pytest.raises(ValueError, match="time zone"):
        clock.advance_to(datetime(2027, 1, 1))  # noqa: DTZ001 - that is what is refused


def test_the_clock_takes_durations_as_options_of_tasks_do() -> None:
    clock = TurnedClock(datetime(2026, 3, 1, tzinfo=UTC))
    for span in ("5m", 90, timedelta(hours=1)):
        clock.advance(span)
    assert clock.now == datetime(2026, 3, 1, 1, 6, 30, tzinfo=UTC)
    assert clock.advance_to(clock.now_ms() + 1) == clock.now_ms()
    with pytest.raises(ValueError, match=r"advance\(\): the duration: 'soon' is not a duration such as"):
        clock.advance("soon")
    with pytest.raises(ValueError, match=r"advance\(\): the duration must not be negative"):
        clock.advance(-1)
    with pytest.raises(TypeError, match=r"advance\(\): the duration must be seconds, a timedelta or text"):
        clock.advance([5])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"the moment must be .* for a duration use advance"):
        clock.advance_to("5m")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="now must be a datetime or milliseconds"):
        InProcessService(now="today")  # type: ignore[arg-type]


def test_claims_time_out_and_jobs_expire_when_their_time_comes(service: InProcessService) -> None:
    client, clock = service.client, service.clock
    client.enqueue("q", [Job(b"claimed", claim_timeout_ms=60_000)])
    client.dequeue("q")
    client.enqueue("q", [Job(b"expires", expires_at_ms=clock.now_ms() + 30_000)])
    clock.advance(seconds=59)
    claimed, expired = service.jobs("q")
    assert (claimed.state, expired.state, expired.custom_status) == (JobState.IN_PROGRESS, JobState.FAILED, "expired")
    clock.advance(seconds=2)
    assert service.jobs("q")[0].state is JobState.PENDING
    assert service.jobs("q")[0].attempts[0].outcome == "timed_out"


def test_finished_jobs_are_deleted_after_their_time_to_live(service: InProcessService) -> None:
    (descriptor,) = service.client.enqueue("q", [b""]).descriptors
    service.client.ack("q", [Ack(descriptor, token=service.client.dequeue("q").jobs[0].token)])
    service.clock.advance(hours=23)
    assert service.job(descriptor).state is JobState.SUCCEEDED
    service.clock.advance(hours=2)
    with pytest.raises(KeyError):
        service.job(descriptor)


def test_a_key_for_a_time_is_free_when_that_is_over(service: InProcessService) -> None:
    job = Job(b"", unique=UniqueKey("k", UniqueScope.TIME, 60_000))
    service.client.enqueue("q", [job])
    service.clock.advance(seconds=59)
    assert service.client.enqueue("q", [job]).existing == (0,)
    service.clock.advance(seconds=2)
    assert service.client.enqueue("q", [job]).existing == ()


# --- long polls ---------------------------------------------------------------------------------------------------------------
async def test_a_long_poll_ends_with_a_job_or_when_its_time_has_been_turned(service: InProcessService) -> None:
    async with service.async_client() as client:
        polling = asyncio.create_task(client.dequeue("q", wait_ms=20_000))
        await asyncio.to_thread(service.client.enqueue, "q", [b"x"])
        assert len((await polling).jobs) == 1
        polling = asyncio.create_task(client.dequeue("q", wait_ms=20_000))
        async with asyncio.timeout(30):
            while not service.client.queue_stats("q")[0].waiting_dequeues:
                await asyncio.sleep(0.001)
        started = time.monotonic()
        service.clock.advance(seconds=20)
        assert (await polling).jobs == []
        assert time.monotonic() - started < 10


async def test_a_long_poll_that_is_given_up_takes_no_job(service: InProcessService) -> None:
    async with service.async_client() as client:
        polling = asyncio.create_task(client.dequeue("q", wait_ms=20_000))
        async with asyncio.timeout(30):
            while not service.client.queue_stats("q")[0].waiting_dequeues:
                await asyncio.sleep(0.001)
        polling.cancel()
        await asyncio.wait([polling])
        await client.enqueue("q", [b"x"])
        assert len((await client.dequeue("q")).jobs) == 1


# --- its end ------------------------------------------------------------------------------------------------------------------
def test_a_client_that_goes_takes_its_calls_with_it(service: InProcessService) -> None:
    client = service.new_client()
    with ThreadPoolExecutor(1) as thread:
        polling = thread.submit(client.dequeue, "q", wait_ms=20_000)
        deadline = time.monotonic() + 30
        while not service.client.queue_stats("q")[0].waiting_dequeues and time.monotonic() < deadline:
            time.sleep(0.001)
        client.close()
        with pytest.raises((ConnectionLost, ClientClosed)):
            polling.result(30)


def test_jobs_are_listed_in_the_order_of_their_enqueues_in_all_states(service: InProcessService) -> None:
    later = service.clock.now_ms() + timedelta(hours=1) // timedelta(milliseconds=1)
    service.client.enqueue("q", [b"1", Job(b"2", run_after_ms=later), Job(b"3", priority=2)])
    service.client.dequeue("q")
    assert [(job.body, job.state.name) for job in service.jobs("q")] == [
        (b"1", "IN_PROGRESS"),
        (b"2", "PENDING"),
        (b"3", "PENDING"),
    ]
    assert [job.body for job in service.jobs("q", JobState.PENDING)] == [b"2", b"3"]
