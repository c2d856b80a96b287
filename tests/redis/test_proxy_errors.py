"""A proxy answers with an error of its own, and Redis carries the call out all the same, at once or later."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Client, Job, QueueConfig
from pinlater.domain.errors import OutcomeUnknown, ShardConnectionFailed, Unavailable
from pinlater.domain.job import JobState
from pinlater.server.storage.commands import (
    DeleteJobs,
    DeleteQueues,
    ListQueues,
    PurgeJobs,
    TimeOutClaims,
    create_queues,
)
from pinlater.server.storage.redis.scripts import script
from pinlater.server.storage.values import Purge
from pinlater.testing.real_server import RealServer
from tests.contract.desk import QUEUE, Desk
from tests.databases.proxy import in_thread
from tests.databases.redis import RedisServer
from tests.redis.proxied_redis import LIMITS, ProxiedRedis
from tests.shared_shards.changes import CHANGES, Change, assert_done_once, prepare
from tests.shared_shards.proxied_database import stats_of

FAILURE = b"-upstream failure\r\n"
# Of Envoy, twemproxy, predixy, Codis and others that answer for a Redis which does not answer them in time.
ERRORS = [
    FAILURE,
    b"-upstream protocol error\r\n",
    b"-no upstream host\r\n",
    b"-ERR Connection timed out\r\n",
    b"-ERR server connection close\r\n",
    b"-ERR handle response, backend conn reset\r\n",
    b"-ERR\r\n",
    b"-TIMEOUT no answer in time\r\n",
    b"-UNAVAILABLE 10.0.0.1:6379\r\n",
    b"-ASK for something else\r\n",
    b"-ERR \xff\r\n",
]

REFUSALS = [
    *("MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "LOADING"),
    *("OOM", "NOAUTH", "NOPERM", "BUSY", "MISCONF", "NOREPLICAS"),
]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_that_was_made_behind_an_error_of_a_proxy_is_answered_as_made(
    database: ProxiedRedis, desk: Desk, change: Change
) -> None:
    held = await prepare(desk, change)
    trap = database.proxy.answer_itself(database.packet_of(change.name), FAILURE)
    assert change.answered(await change.act(desk, held))
    assert (trap.sprung, stats_of(desk).settled) == (True, 1)
    await assert_done_once(database, desk, change.name, held)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_that_a_proxy_delivers_late_is_made_once(
    database: ProxiedRedis, desk: Desk, change: Change
) -> None:
    held = await prepare(desk, change)
    trap = database.proxy.answer_itself(database.packet_of(change.name), FAILURE, at_once=True)
    assert change.answered(await change.act(desk, held))
    database.server.execute(*words_of(trap.request))
    await assert_done_once(database, desk, change.name, held)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_change_that_is_called_not_made_is_not_made_later_either(
    database: ProxiedRedis, change: Change
) -> None:
    """The error after the last try says that nothing was changed, and the proxy delivers the request after that."""
    desk = await database.desk(retries=0)
    held = await prepare(desk, change)
    trap = database.proxy.answer_itself(database.packet_of(change.name), FAILURE, at_once=True)
    with pytest.raises(ShardConnectionFailed, match="upstream failure; the change was not carried out") as failed:
        await change.act(desk, held)
    assert not isinstance(failed.value, OutcomeUnknown)
    with pytest.raises(Exception, match="OVERTAKEN"):
        database.server.execute(*words_of(trap.request))
    assert change.answered(await change.act(desk, held))
    await assert_done_once(database, desk, change.name, held)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_no_error_of_a_proxy_is_taken_for_one_of_redis(database: ProxiedRedis, desk: Desk, error: bytes) -> None:
    traps = [database.proxy.answer_itself(database.packet_of("insert"), error) for _ in range(LIMITS["retries"] + 1)]
    await desk.put(b"new")
    assert all(trap.sprung for trap in traps)
    await assert_done_once(database, desk, "insert")


@pytest.mark.parametrize("code", REFUSALS)
async def test_an_error_of_redis_itself_needs_no_question(database: ProxiedRedis, code: str) -> None:
    """It comes before a call begins."""
    desk = await database.desk(retries=0)
    await desk.insert()  # connects
    trap = database.proxy.answer_itself(
        database.packet_of("insert"), f"-{code} 866 10.0.0.1:6379\r\n".encode(), at_once=True
    )
    settling = database.proxy.lose_request(script("settle").sha)
    with pytest.raises(Unavailable) as refused:
        await desk.put(b"new")
    assert not isinstance(refused.value, OutcomeUnknown)
    await desk.put(b"new")
    assert (trap.sprung, settling.sprung) == (True, False)
    await assert_done_once(database, desk, "insert")


async def _delete(desk: Desk) -> int:
    [row] = await desk.scan(JobState.PENDING)
    return await desk.shard.submit(DeleteJobs([row.key]))


async def _purge(desk: Desk) -> object:
    return await desk.shard.submit(PurgeJobs(Purge(QUEUE, JobState.PENDING, 1, 10)))


@pytest.mark.parametrize("remove", [_delete, _purge])
async def test_jobs_that_were_deleted_behind_an_error_of_a_proxy_are_counted_once(
    database: ProxiedRedis, desk: Desk, remove: Callable[[Desk], Awaitable[Any]]
) -> None:
    await desk.put()
    trap = database.proxy.answer_itself(script("change_jobs").sha, FAILURE)
    assert await remove(desk) == 1
    assert trap.sprung
    assert (await desk.counts()).pending == 0
    await database.assert_consistent(deleted=True)


async def test_a_queue_that_was_made_or_deleted_behind_an_error_of_a_proxy_is_answered_so(
    database: ProxiedRedis, desk: Desk
) -> None:
    await desk.shard.submit(create_queues(["other"], desk.now))
    made = database.proxy.answer_itself(script("merge_queues").sha, FAILURE)
    [queue] = await desk.shard.submit(create_queues(["more"], desk.now))
    gone = database.proxy.answer_itself(script("delete_queues").sha, FAILURE)
    await desk.shard.submit(DeleteQueues([QUEUE]))
    assert (queue.name, made.sprung, gone.sprung) == ("more", True, True)
    assert {queue.name for queue in await desk.shard.submit(ListQueues())} == {"other", "more"}


async def test_a_read_that_a_proxy_answers_with_an_error_is_made_again(database: ProxiedRedis, desk: Desk) -> None:
    await desk.put()
    await desk.counts()
    trap = database.proxy.answer_itself(script("count_jobs").sha, FAILURE)
    assert (await desk.counts()).pending == 1
    assert trap.sprung


async def test_a_claim_that_only_a_proxy_knows_of_is_given_back(database: ProxiedRedis) -> None:
    """The proxy answers every question with its error until the server gives up: the outcome is unknown, and no worker has the job."""
    desk = await database.desk(connect_timeout_ms=100, retries=0)
    await desk.put(b"old")
    database.proxy.answer_itself(database.packet_of("claim"), FAILURE)
    settling = [database.proxy.answer_itself(script("settle").sha, FAILURE) for _ in range(500)]
    with pytest.raises(OutcomeUnknown, match="upstream failure"):
        await desk.claim()
    assert any(trap.sprung for trap in settling)
    database.proxy.heal()
    assert list(await desk.shard.submit(TimeOutClaims(desk.now, 10))) == []
    assert (await desk.take()).job.body == b"old"
    await database.assert_consistent()


async def test_a_script_that_fails_in_the_middle_leaves_the_outcome_open(database: ProxiedRedis, desk: Desk) -> None:
    """A key of another type, as a program of others may leave it: what was written before it stays, so it is not called refused."""
    await desk.put(b"old")
    [index] = [key for key in database.server.execute("KEYS", b"pinlater{1}:r*") if b"\x01" in key]
    assert [held.job.body for held in await desk.claim()] == [b"old"]
    database.server.execute("SET", index, "x")
    with pytest.raises(OutcomeUnknown, match=r"wrong kind of value.*a part of the change may be stored"):
        await desk.put(b"new")
    database.server.execute("DEL", index)
    await desk.put(b"next")
    assert [held.job.body for held in await desk.claim()] == [b"next"]


def test_an_enqueue_behind_an_error_of_a_proxy_is_stored_on_one_shard(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """Two shards, of which the other one must not get the job too, with a request key or without."""
    redis = start_redis(appendonly=False)
    with in_thread(redis.address) as proxy:
        shards = [
            {"name": name, "shardConfig": {"master": {"host": "127.0.0.1", "port": port}}}
            for name, port in (("1", proxy.port), ("2", redis.port))
        ]
        path = tmp_path / "shards.json"
        path.write_text(json.dumps({"shards": shards}))
        with (
            RealServer(tmp_path, store=f"redis:{path}") as server,
            Client(server.address, request_keys=False) as unkeyed,
            Client(server.address) as keyed,
        ):
            keyed.create_queue(QUEUE)
            keyed.configure_queue(QUEUE, QueueConfig(partitions=2))
            descriptors: list[str] = []

            def enqueue(client: Client) -> None:
                descriptors.extend(client.enqueue(QUEUE, [Job(b"%d" % len(descriptors))]).descriptors)

            while {":s1:" in descriptor for descriptor in descriptors} != {True, False}:
                enqueue(unkeyed)  # so that both shards know the script
            for client in (unkeyed, keyed):
                trap = proxy.answer_itself(script("insert_jobs").sha, FAILURE)
                while not trap.sprung:
                    enqueue(client)
            bodies: list[bytes] = []
            while jobs := keyed.dequeue(QUEUE, limit=100).jobs:
                bodies += [job.body for job in jobs]
            assert sorted(bodies, key=int) == [b"%d" % number for number in range(len(descriptors))]


def words_of(request: bytes) -> list[bytes]:
    """The words of one command in Redis' protocol."""
    words, rest = [], request.partition(b"\r\n")[2]
    while rest:
        length, _, rest = rest.partition(b"\r\n")
        words.append(rest[: int(length[1:])])
        rest = rest[int(length[1:]) + 2 :]
    return words
