"""A server that was suspended past its lease asks for the outcome of a transaction. Slots in general: tests/shared_shards."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.errors import OutcomeUnknown
from pinlater.domain.job import Outcome
from pinlater.server.storage.commands import create_queues
from tests.mysql.proxied_mysql import COMMIT, ProxiedMysql
from tests.shared_shards.proxied_database import until


async def test_an_outcome_that_the_next_holder_of_the_slot_has_written_over_is_unknown(database: ProxiedMysql) -> None:
    """Carried out, and then the server was suspended past its lease before it could ask. It must not say that nothing was done."""
    sleeper = await database.desk(statement_timeout_ms=700)
    held = await sleeper.put_and_take(b"sleeper's")
    await sleeper.succeed(held.key, token="not that of the claim")  # connects
    database.proxy.lose_answer(COMMIT, hang=True)
    call = asyncio.ensure_future(sleeper.succeed(held.key, token=held.holder.token))
    database.proxy.refuse()
    operator = await database.desk(direct=True)

    async def carried_out() -> bool:
        return (await operator.counts()).succeeded == 1

    await until(carried_out)
    await database.expire_leases()
    successor = await database.desk(direct=True)
    assert successor.shard.slot == 0
    database.proxy.heal()
    with pytest.raises(OutcomeUnknown, match="slot"):
        await call
    assert (await sleeper.succeed(held.key, token=held.holder.token)).outcome is Outcome.ALREADY_FINAL
    await sleeper.shard.submit(create_queues(["more"], sleeper.now))  # the first change notices that the slot is lost
    assert sleeper.shard.slot != successor.shard.slot
    await database.assert_consistent()
