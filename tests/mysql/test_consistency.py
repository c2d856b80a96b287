"""The check of a shard's tables sees what is wrong; one that saw nothing would prove nothing."""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState
from tests.contract.desk import Desk, unique
from tests.mysql.consistency import inconsistencies
from tests.mysql.proxied_mysql import ProxiedMysql

HARMS = {
    "UPDATE counters SET pending = pending + 1 LIMIT 1": "counted",
    "UPDATE counters SET future = future + 1 LIMIT 1": "counted",
    "DELETE FROM done WHERE state = 3": "is in no state",
    "INSERT INTO done SELECT id, queue_id, 2, priority, 1, NULL FROM claims": "is in claims,done",
    "DELETE FROM jobs WHERE id IN (SELECT id FROM claims)": "not stored so",
    "UPDATE ready SET run_after_ms = run_after_ms + 1": "the waiting row",
    "UPDATE ready SET flags = 0": "the waiting row",
    "UPDATE claims SET flags = flags ^ 1": "the claim of",
    "DELETE FROM expiries": "would never expire",
    "DELETE FROM future": "would count as future for ever",
    "UPDATE unique_keys SET id = (SELECT id FROM done LIMIT 1)": "names job",
    "UPDATE ordered SET id = (SELECT id FROM done LIMIT 1) WHERE number = 1": "has a place under its ordering key",
    "DELETE FROM ordered WHERE number = 1": "is number 2 of its ordering key",
    "DELETE FROM ordered WHERE number = 3": "waits for ever behind no other",
}


@pytest.mark.parametrize("harm", HARMS)
async def test_harm_is_seen(database: ProxiedMysql, desk: Desk, harm: str) -> None:
    for state in JobState:
        if state is not JobState.PENDING:
            await desk.put_in(state)
    await desk.put(unique=unique("key"), expires_in_ms=60_000)
    await desk.put(delay_ms=60_000)
    for _ in range(3):
        await desk.put(ordering_key="key")
    assert await inconsistencies(database.server, database.name) == []
    await database.ask(harm)
    assert any(HARMS[harm] in text for text in await inconsistencies(database.server, database.name))
