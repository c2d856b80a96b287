"""What an answer is worth by Redis' own settings: Redis is killed (`kill -9`) under load, and what was answered is looked for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinlater.client import Ack, Client, Job, JobState, Outcome
from pinlater.client.errors import PinLaterError
from pinlater.testing.real_server import RealServer
from tests.databases.redis import RedisServer
from tests.databases.redis_users import WITH_USERS, url_of

_DEADLINE_S = 30.0
_ENOUGH = 300


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not what():
        assert time.monotonic() < deadline


class RecordingClients:
    """Producers and workers of one server, who write down what they were told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.over = threading.Event()
        self.enqueued: set[bytes] = set()
        self.acked: set[bytes] = set()

    def has_enqueued(self, more: int) -> Callable[[], bool]:
        """Whether this number of jobs was enqueued after this call."""
        far = len(self.enqueued) + more
        return lambda: len(self.enqueued) >= far

    def produce(self, name: int) -> None:
        """One job after another; only those whose enqueue was answered count."""
        with Client(self.address, timeout_ms=1_000) as client:
            number = 0
            while not self.over.is_set():
                number += 1
                body = b"%d-%d" % (name, number)
                try:
                    client.enqueue("emails", [Job(body)])
                except PinLaterError:
                    continue
                self.enqueued.add(body)

    def work(self) -> None:
        """Claims and acks, a few at a time."""
        with Client(self.address, timeout_ms=1_000) as client:
            while not self.over.is_set():
                try:
                    jobs = client.dequeue("emails", limit=5, wait_ms=50).jobs
                    acks = client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
                except PinLaterError:
                    continue
                applied = zip(jobs, acks, strict=True)
                self.acked |= {job.body for job, ack in applied if ack.outcome is Outcome.APPLIED}


def rest_of(client: Client) -> set[bytes]:
    """Bodies of everything that waits."""
    found: set[bytes] = set()
    while jobs := client.dequeue("emails", limit=500).jobs:
        found |= {job.body for job in jobs}
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize("appendfsync", ["always", "everysec", "no"])
def test_answered_changes_survive_a_kill_of_redis(
    appendfsync: str, start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """With `everysec` Redis answers before it writes if a flush is under way, so it is killed at another moment."""
    redis = start_redis(**WITH_USERS, appendonly="yes", appendfsync=appendfsync)
    options = ("--set", "jobs.claim_timeout_ms=1500", "--set", "maintenance.sweep_interval_ms=50")
    with RealServer(tmp_path, *options, store=url_of(redis)) as server, Client(server.address) as client:
        client.create_queue("emails")
        load = RecordingClients(server.address)
        with ThreadPoolExecutor(6) as threads:
            futures = [*(threads.submit(load.produce, name) for name in range(4)), threads.submit(load.work)]
            try:
                for _ in range(2):
                    wait_until(load.has_enqueued(_ENOUGH))
                    redis.kill_once_written()
                    redis.start()
            finally:
                load.over.set()
            for future in futures:
                future.result()
        assert load.acked
        found: set[bytes] = set()

        def all_found() -> bool:
            with contextlib.suppress(PinLaterError):  # the shard may be out of use for a second yet
                found.update(rest_of(client))
            return load.enqueued - load.acked <= found

        wait_until(all_found)  # claims whose answers were lost come back by their time-out
        assert not found & load.acked


@pytest.mark.timeout(120)
def test_each_failed_attempt_is_in_a_group_once_after_kills_of_redis(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """Of failures, and of claims that timed out because an answer was lost."""
    redis = start_redis(**WITH_USERS, appendonly="yes", appendfsync="always")
    options = ("--set", "jobs.claim_timeout_ms=1500", "--set", "maintenance.sweep_interval_ms=50")
    with RealServer(tmp_path, *options, store=url_of(redis)) as server, Client(server.address) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x", attempts_allowed=10_000) for _ in range(100)])
        over, acked = threading.Event(), list[int]()

        def fail() -> None:
            with Client(server.address, timeout_ms=1_000) as worker:
                while not over.is_set():
                    with contextlib.suppress(PinLaterError):
                        jobs = worker.dequeue("emails", limit=5, wait_ms=50).jobs
                        worker.ack("emails", [Ack(job.descriptor, succeeded=False, token=job.token) for job in jobs])
                        acked.append(len(jobs))

        with ThreadPoolExecutor(3) as threads:
            futures = [threads.submit(fail) for _ in range(3)]
            try:
                for _ in range(2):
                    goal = sum(acked) + _ENOUGH
                    wait_until(lambda goal=goal: sum(acked) >= goal)  # type: ignore[misc]
                    redis.kill_once_written()
                    redis.start()
            finally:
                over.set()
            for future in futures:
                future.result()

        def none_is_claimed() -> bool:
            with contextlib.suppress(PinLaterError):
                return client.queue_stats("emails")[0].total("in_progress") == 0
            return False

        wait_until(none_is_claimed)
        jobs = client.scan("emails", JobState.PENDING, limit=1_000, paged=True).jobs
        assert len(jobs) == 100
        spent = sum(job.attempts_allowed - job.attempts_remaining for job in jobs)
        assert spent == sum(group.failures for group in client.failures("emails").groups) >= sum(acked)


def test_without_a_log_what_was_answered_since_the_last_snapshot_is_lost(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    redis = start_redis(**WITH_USERS, appendonly="no", save="")
    with RealServer(tmp_path, store=url_of(redis)) as server, Client(server.address, timeout_ms=1_000) as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"lost")])
        redis.kill()
        redis.start()

        def works_again() -> bool:
            try:
                client.create_queue("emails")
                client.enqueue("emails", [Job(b"new")])
            except PinLaterError:
                return False
            return True

        wait_until(works_again)
        assert rest_of(client) == {b"new"}
