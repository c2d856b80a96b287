"""What the keys are called: all of a shard's lie in one hash slot, and shards side by side don't meet."""

from __future__ import annotations

import re
from pathlib import Path

from pinlater.domain.job import JobState, UniqueScope
from pinlater.server.storage.commands import Announce, DeleteQueues, NoteMap, SaveSamples, create_queues
from pinlater.server.storage.redis import keys
from pinlater.server.storage.redis.scripts import names, script
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings
from pinlater.server.storage.redis.shard import RedisShard
from pinlater.server.storage.values import InsertRequest, JobCheckpoint, StoredSample
from tests.contract.desk import ALL, QUEUE, Desk, unique
from tests.redis.consistency import keys_of
from tests.redis.proxied_redis import FRONT, ProxiedRedis


async def live_through_everything(desk: Desk) -> None:
    """Every kind of key is made."""
    for state in list(JobState)[::-1]:
        await desk.put_in(state, status="s", unique=unique(f"{state}", UniqueScope.UNFINISHED))
    await desk.put(unique=unique("timed", UniqueScope.TIME, 1_000), expires_in_ms=5, delay_ms=10)
    await desk.request(InsertRequest(QUEUE, [desk.job()], "key", b"f"))
    held = await desk.take()
    await desk.checkpoint(JobCheckpoint(held.key, "worker", new_body=b"new"))
    await desk.shard.submit(create_queues(["other"], desk.now))
    await desk.put(queue="other")
    await desk.shard.submit(DeleteQueues(["other"]))
    await desk.shared.submit(Announce("127.0.0.1:9010"))
    await desk.shard.submit(NoteMap("{}", desk.now))
    await desk.shard.submit(SaveSamples([StoredSample(60, desk.now, QUEUE, "server", b"data")]))


async def test_all_keys_of_a_shard_share_its_hash_tag(database: ProxiedRedis, desk: Desk) -> None:
    """So a Redis Cluster keeps them on one node."""
    await live_through_everything(desk)

    found = keys_of(database.server)

    assert [key for key in found if not key.startswith(FRONT)] == []


async def test_only_documented_keys_are_made(database: ProxiedRedis, desk: Desk) -> None:
    """The list at the head of `keys.py` is the whole vocabulary."""
    await live_through_everything(desk)
    documented = set(re.findall(r"^    (\w+)(?:<\w+>)?\s", keys.__doc__ or "", re.MULTILINE))

    for key in keys_of(database.server):
        name = key.removeprefix(FRONT)
        assert name.decode(errors="replace") in documented or name[:1].decode() in documented, key


async def test_shards_side_by_side_do_not_meet(database: ProxiedRedis, desk: Desk) -> None:
    """Two names in one database, and one name under two prefixes."""
    others = []
    for prefix, name in (("pinlater", "2"), ("elsewhere", "1")):
        shard = RedisShard(RedisEndpoint("127.0.0.1", database.server.port), RedisSettings(key_prefix=prefix), name)
        other = Desk(lambda shard=shard: shard)  # type: ignore[misc]
        await other.open()
        await shard.submit(create_queues([QUEUE], other.now))
        others.append(other)
    try:
        await desk.put(b"one")
        for other in others:
            assert await other.claim(ALL) == []
            await other.put(b"another")
        assert [held.job.body for held in await desk.claim(ALL)] == [b"one"]
    finally:
        for other in others:
            await other.shard.close()


def test_every_script_says_what_it_is_given_and_what_it_answers() -> None:
    """At its head; and no script is anywhere but in a file of its own."""
    for name in names():
        own = (Path(keys.__file__).parent / "scripts" / f"{name}.lua").read_text()
        head = "\n".join(line for line in own.splitlines()[:20] if line.startswith("--"))
        for number in set(re.findall(r"ARGV\[(\d+)\]", own)):
            assert f"ARGV[{number}]" in head, f"{name}: ARGV[{number}]"
        assert script(name).text.endswith(own.encode())
