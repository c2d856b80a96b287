"""What the original's Redis backend did to its users doesn't happen here, over a socket and on a real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater.client import Ack, Checkpoint, Client, Job, JobState
from pinlater.testing.real_server import RealServer
from tests.databases.redis import RedisServer
from tests.databases.redis_users import url_of

EVERY_BYTE = bytes(range(256)) + b"\xff\xfe \xc3\x28 \xed\xa0\x80"


@pytest.fixture
def client(tmp_path: Path, redis_with_users: RedisServer, redis_prefix: str) -> Iterator[Client]:
    prefix = ("--set", f"redis.key_prefix={redis_prefix}", "--set", "maintenance.sweep_interval_ms=50")
    with RealServer(tmp_path, *prefix, store=url_of(redis_with_users)) as server, Client(server.address) as client:
        client.create_queue("emails")
        yield client


def test_a_delete_with_limit_0_and_a_regex_deletes_nothing_and_locks_nothing_on_redis(client: Client) -> None:
    """There it never ended, and Redis answered no other client any more."""
    client.enqueue("emails", [Job(b"%d" % number) for number in range(50)])
    assert client.delete_jobs("emails", JobState.PENDING, limit=0, regex=".*") == 0
    assert client.delete_jobs("emails", JobState.PENDING, limit=0) == 0
    assert client.retry_failed("emails", attempts=1, limit=0) == 0
    assert client.queue_stats("emails")[0].total("pending") == 50
    assert client.delete_jobs("emails", JobState.PENDING, limit=10, regex="^1") == 10
    assert client.delete_jobs("emails", JobState.PENDING, limit=1_000, regex="(a+)+$") == 0
    assert client.queue_stats("emails")[0].total("pending") == 40


def test_bodies_of_any_bytes_come_back_as_they_were_on_redis(client: Client) -> None:
    """There they were text, and bytes that are not UTF-8 were changed. Through claim, failure, checkpoint, lookup and retry."""
    [descriptor] = client.enqueue("emails", [Job(EVERY_BYTE, attempts_allowed=2)]).descriptors
    [job] = client.dequeue("emails").jobs
    assert job.body == EVERY_BYTE
    client.ack("emails", [Ack(job.descriptor, succeeded=False, token=job.token)])
    [job] = client.dequeue("emails", wait_ms=5_000).jobs
    assert job.body == EVERY_BYTE
    client.checkpoint("emails", [Checkpoint(job.descriptor, token=job.token, new_body=EVERY_BYTE[::-1])])
    assert client.lookup([descriptor], bodies=True)[descriptor].body == EVERY_BYTE[::-1]
    client.ack("emails", [Ack(job.descriptor, succeeded=False, token=job.token)])
    assert client.retry_failed("emails", attempts=1, limit=10) == 1
    [job] = client.dequeue("emails", wait_ms=5_000).jobs
    assert job.body == EVERY_BYTE[::-1]
