"""Redis says no: out of memory, read-only, busy, loading, not allowed, another node's. Each is a clear error, and nothing is half done."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

import pytest
from redis.exceptions import ResponseError

from pinlater.domain.errors import OutcomeUnknown, PinLaterError, ShardConnectionFailed, ShardRefused, StoreFull
from pinlater.domain.job import JobState, Outcome
from pinlater.server.storage.commands import create_queues
from pinlater.server.storage.redis.errors import Refused, refusal_of, translate
from pinlater.server.storage.redis.settings import RedisEndpoint
from pinlater.server.storage.redis.shard import RedisShard
from tests.contract.desk import QUEUE, Desk
from tests.databases.redis import RedisServer
from tests.redis.proxied_redis import ProxiedRedis, proxied
from tests.shared_shards.proxied_database import until


@pytest.fixture
async def own(start_redis: Callable[..., RedisServer]) -> AsyncIterator[ProxiedRedis]:
    """On a Redis of the test's own."""
    async with proxied(start_redis(appendonly=False)) as database:
        yield database


async def test_near_the_memory_limit_enqueues_are_refused_and_the_rest_goes_on(own: ProxiedRedis) -> None:
    """Before Redis does it."""

    async def buffers_are_small() -> bool:
        return int(own.server.execute("INFO", "memory")["mem_clients_normal"]) < 2**20

    desk, full = await own.desk(), await own.desk()
    held = [await desk.put_and_take() for _ in range(2)]
    for _ in range(20):
        await desk.put(bytes(2**20), priority=3)
    await desk.put(b"waits")
    await until(buffers_are_small)
    used = own.server.execute("INFO", "memory")["used_memory"]
    own.server.execute("CONFIG", "SET", "maxmemory", int(used * 1.04))

    with pytest.raises(StoreFull, match="maxmemory"):
        await full.put(b"too much")

    assert (await full.succeed(held[0].key)).outcome is Outcome.APPLIED
    assert (await full.fail(held[1].key)).state is JobState.PENDING
    assert len(await full.claim(2)) == 2
    await own.assert_consistent()


async def test_the_next_enqueue_is_stored_once_redis_has_memory_again(own: ProxiedRedis) -> None:
    """Redis is asked before an enqueue is refused: an older answer decides nothing."""
    desk = await own.desk()
    own.server.execute("CONFIG", "SET", "maxmemory", 1_000)
    with pytest.raises(StoreFull, match="maxmemory"):
        await desk.put(b"too much")
    own.server.execute("CONFIG", "SET", "maxmemory", 0)
    await desk.put(b"fits")
    await own.assert_consistent()


async def test_out_of_memory_claims_and_acks_go_on(own: ProxiedRedis) -> None:
    """Redis refuses what needs memory; these free some in the end."""
    desk = await own.desk(memory_used_max_percent=100)
    for _ in range(3):
        await desk.put()
    [held, other] = await desk.claim(2)
    own.server.execute("CONFIG", "SET", "maxmemory", 1_000)

    assert (await desk.succeed(held.key)).outcome is Outcome.APPLIED
    assert (await desk.fail(other.key, error=("E", "text"))).state is JobState.PENDING
    assert len(await desk.claim(10)) == 2
    await desk.shard.ping()
    await own.assert_consistent()


async def test_a_replica_takes_no_writes_and_says_so(own: ProxiedRedis) -> None:
    """As after a failover: the connection is to what was the master."""
    desk = await own.desk()
    await desk.put()
    own.server.execute("REPLICAOF", "127.0.0.1", "1")

    with pytest.raises(ShardConnectionFailed, match="replica") as failed:
        await desk.put()
    assert failed.value.retryable
    assert not isinstance(failed.value, OutcomeUnknown)

    own.server.execute("REPLICAOF", "NO", "ONE")
    await desk.put()
    assert (await desk.counts()).pending == 2


async def test_work_continues_after_an_endless_script_of_another_client(own: ProxiedRedis) -> None:
    """BUSY: nothing was done; once it has been killed, work continues."""
    desk = await own.desk(retries=0)
    await desk.put()
    own.server.execute("CONFIG", "SET", "lua-time-limit", 10)

    def run() -> None:
        with pytest.raises(Exception, match="killed"):
            own.server.execute("EVAL", "while true do end", 0)

    endless = threading.Thread(target=run)
    endless.start()
    try:
        refused: list[PinLaterError] = []

        async def busy() -> bool:
            try:
                await desk.claim(0)
            except PinLaterError as error:
                refused.append(error)
            return bool(refused)

        await until(busy)
        assert isinstance(refused[0], ShardRefused)
        assert "busy" in refused[0].message
    finally:
        own.server.execute("SCRIPT", "KILL")
        endless.join()
    assert len(await desk.claim(10)) == 1


async def test_scripts_that_redis_has_forgotten_are_sent_again(own: ProxiedRedis) -> None:
    """After a restart, a failover, or SCRIPT FLUSH."""
    desk = await own.desk()
    own.server.execute("SCRIPT", "FLUSH")
    held = await desk.put_and_take()
    own.server.execute("SCRIPT", "FLUSH")
    assert (await desk.fail(held.key)).state is JobState.PENDING


async def test_a_suspended_redis_is_given_up_in_time(own: ProxiedRedis) -> None:
    desk = await own.desk(command_timeout_ms=300, connect_timeout_ms=300)
    await desk.put()
    own.server.suspend()
    try:
        with pytest.raises(ShardConnectionFailed):
            await desk.put()
        with pytest.raises(ShardConnectionFailed):
            await desk.scan(JobState.PENDING)
    finally:
        own.server.resume()
    assert (await desk.counts()).pending in {1, 2}
    await desk.put()
    await own.assert_consistent()


async def test_a_redis_that_refuses_connections_is_a_failed_connection(own: ProxiedRedis) -> None:
    desk = await own.desk()
    await desk.put()
    own.proxy.refuse()
    own.proxy.cut()

    async def gone() -> bool:
        return not own.proxy.open

    await until(gone)
    with pytest.raises(ShardConnectionFailed) as failed:
        await desk.put()
    assert not isinstance(failed.value, OutcomeUnknown)
    own.proxy.heal()
    await desk.put()
    assert (await desk.counts(QUEUE)).pending == 2


@pytest.mark.parametrize(
    ("code", "text", "words", "retryable"),
    [
        ("MOVED", "866 10.0.0.1:6379", "Cluster", False),
        ("ASK", "866 10.0.0.1:6379", "Cluster", False),
        ("NOAUTH", "Authentication required.", "ACL", False),
        ("WRONGPASS", "invalid username-password pair", "password", False),
        ("NOPERM", "this user has no permissions", "ACL", False),
        ("LOADING", "Redis is loading the dataset in memory", "loading", True),
        ("MASTERDOWN", "Link with MASTER is down", "master", True),
        ("MISCONF", "Errors writing to the AOF file: No space left on device", "No space left", True),
        ("NOREPLICAS", "Not enough good replicas to write.", "replicas", True),
        ("READONLY", "You can't write against a read only replica.", "replica", True),
        ("CLUSTERDOWN", "The cluster is down", "cluster is down", True),
        ("BUSY", "Redis is busy running a script.", "busy", True),
        ("ERR", "something else", "something else", True),
    ],
)
def test_each_refusal_says_what_would_help(code: str, text: str, words: str, retryable: bool) -> None:
    error = translate(Refused(code, text), RedisEndpoint(password="p"))
    assert words in error.message
    assert "127.0.0.1:6379/0" in error.message
    assert error.retryable is retryable
    assert isinstance(error.__cause__, Refused)


@pytest.mark.parametrize("code", ["NOAUTH", "WRONGPASS"])
def test_a_login_without_a_password_is_said_to_lack_one(code: str) -> None:
    """The driver has one error for both codes, so `connect` can't tell them apart."""
    error = translate(Refused(code, "Authentication required."), RedisEndpoint())
    assert error.message == (
        "127.0.0.1:6379/0 refuses our login (Authentication required.): no password is configured; "
        "set PINLATER_REDIS_PASSWORD or redis.password_file"
    )
    assert not error.retryable


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("-OOM command not allowed when used memory > 'maxmemory'.", "OOM", "maxmemory"),
        ("-READONLY You can't write against a read only replica.", "READONLY", "replica"),
        ("-NOREPLICAS Not enough good replicas to write.", "NOREPLICAS", "replicas"),
        ("-MISCONF Errors writing to the AOF file: No space left on device", "MISCONF", "No space left"),
        ("@... snapshotting fails (stop-writes-on-bgsave-error option). Please check", "MISCONF", "snapshotting"),
        ("Wrong number of args calling Redis command From Lua script", "ERR", "Wrong number"),
    ],
)
def test_errors_of_redis_6_within_a_script_are_understood(text: str, code: str, word: str) -> None:
    """There the reason stands behind where the script was, maybe cut short."""
    error = ResponseError(f"Error running script (call to f_131a4b): @user_script:114: @user_script: 114: {text}")
    refused = refusal_of(error)
    assert refused is not None
    assert refused.code == code
    assert word in refused.text


async def test_a_cluster_node_without_our_keys_gets_a_clear_error(start_redis: Callable[..., RedisServer]) -> None:
    """No cluster client is needed as long as the node that is named has the shard's slot."""
    server = start_redis(appendonly=False, cluster_enabled=True)
    shard = RedisShard(RedisEndpoint(server.host, server.port))
    try:
        with pytest.raises(ShardConnectionFailed, match="cluster is down"):
            await shard.open(0)  # no slots at all
        server.execute("CLUSTER", "ADDSLOTS", *range(16384))

        async def served() -> bool:
            return b"cluster_state:ok" in server.execute("CLUSTER", "INFO")

        await until(served)
        await shard.open(0)
        desk = Desk(lambda: shard)
        await desk.open()
        await desk.shard.submit(create_queues([QUEUE], desk.now))
        held = await desk.put_and_take()
        assert (await desk.fail(held.key)).state is JobState.PENDING
    finally:
        await shard.close()
