"""A repeat reaches another server while its first try is under way on a shard that is not the first of its key's order: both servers
choose their shards, and one of the two is stored."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import OutcomeUnknown, RequestTooOld, ShardConnectionFailed, StoreFull
from tests.sharding.sharded_server import ShardedServer, on_shards, shards_of
from tests.sharding.test_keys_across_shards import jobs, key_for
from tests.sharding.test_two_maps import ahead_of

SHARDS = ("1", "2")


@on_shards(shards=SHARDS)
async def test_a_first_try_that_comes_after_its_repeat_is_refused(server: ShardedServer) -> None:
    """It went to the second shard, for the first was out of use there, and its server stood still before the transaction began. The
    repeat's server uses the first shard."""
    other = await ahead_of(server, SHARDS)
    key = await key_for(server, "1")
    server.lanes("1").put_out_of_use("test")
    fault = server.store("2").hangs("insert_jobs")
    first = asyncio.ensure_future(server.enqueue(b"x", key=key))
    await fault.met.wait()
    repeat = await other.enqueue(b"x", key=key, repeat=True)
    fault.release()
    await server.turns()
    assert shards_of(repeat) == ["1"]
    assert isinstance(first.exception(), RequestTooOld)
    assert await jobs(server) == 1
    assert await other.enqueue(b"x", key=key, repeat=True) == repeat
    await other.close()


@on_shards(shards=SHARDS)
async def test_a_first_try_that_is_stored_while_its_repeat_is_begun_is_the_one_that_counts(
    server: ShardedServer,
) -> None:
    """The repeat's server has looked for it in vain, and is about to call it off."""
    other = await ahead_of(server, SHARDS)
    key = await key_for(server, "1")
    fault = other.store("2").hangs("insert_jobs")
    repeat = asyncio.ensure_future(other.enqueue(b"x", key=key, repeat=True))
    await fault.met.wait()
    server.lanes("1").put_out_of_use("test")
    first = await server.enqueue(b"x", key=key)
    assert shards_of(first) == ["2"]
    fault.release()
    await server.turns()
    assert repeat.result() == first
    assert await jobs(server) == 1
    await other.close()


@on_shards(shards=SHARDS)
async def test_a_repeat_that_could_not_be_called_off_everywhere_is_refused_and_its_next_is_stored(
    server: ShardedServer,
) -> None:
    key = await key_for(server, "1")
    server.store("2").fails("insert_jobs", error=OutcomeUnknown("the connection is gone"))
    with pytest.raises(ShardConnectionFailed, match="stored already"):
        await server.enqueue(b"x", key=key, repeat=True)
    assert await jobs(server) == 0
    assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == ["1"]


@pytest.mark.parametrize("full", SHARDS)
def test_a_repeat_is_stored_although_a_shard_is_full(full: str) -> None:
    """On the shard that is not, if it is known which of them is."""

    @on_shards(shards=SHARDS)
    async def scenario(server: ShardedServer) -> None:
        key = await key_for(server, "1")
        space = next(name for name in SHARDS if name != full)
        server.store(full).fails("insert_jobs", error=StoreFull("no space"))
        await server.enqueue(b"other", key=await key_for(server, full, "other"))
        server.store(full).fails("insert_jobs", error=StoreFull("no space"))
        assert shards_of(await server.enqueue(b"x", key=key, repeat=True)) == [space]

    scenario()


@on_shards(shards=SHARDS)
async def test_a_server_that_knows_one_shard_only_refuses_what_was_called_off_there(server: ShardedServer) -> None:
    other = await ahead_of(server, ("1",))
    key = await key_for(server, "2")
    await server.enqueue(b"x", key=key, repeat=True)
    with pytest.raises(RequestTooOld):
        await other.enqueue(b"x", key=key)
    assert await jobs(server) == 1
    await other.close()
