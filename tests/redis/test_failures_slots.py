"""Another server takes a server's slot before the answer to a change comes. Slots in general: tests/shared_shards."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import OutcomeUnknown
from tests.redis.proxied_redis import ProxiedRedis
from tests.shared_shards.proxied_database import until


async def test_a_change_is_never_called_undone_because_the_slot_was_taken_before_its_answer_came(
    database: ProxiedRedis,
) -> None:
    """A caller that took it for undone would put the job on another shard, too."""
    sleeper = await database.desk(retries=12)
    await sleeper.insert()  # connects
    job = sleeper.job(b"sleeper's")
    trap = database.proxy.lose_answer(database.packet_of("insert"))
    database.proxy.refuse()
    inserting = asyncio.ensure_future(sleeper.insert(job))

    async def is_sprung() -> bool:
        return trap.sprung

    await until(is_sprung)
    await database.expire_leases()
    successor = await database.desk(direct=True)
    assert successor.shard.slot == 0
    database.proxy.heal()
    with pytest.raises(OutcomeUnknown, match="took this one's slot"):
        await inserting
    assert [held.job.body for held in await successor.claim(10)] == [b"sleeper's"]
    await sleeper.shard.ping()
    assert sleeper.shard.slot == 1
    await database.assert_consistent()
