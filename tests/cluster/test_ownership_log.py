"""What a server logs and counts when slices get another owner."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest

from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.slices import SLICES
from pinlater.server.cluster.ownership.ownership import Ownership
from pinlater.server.cluster.ownership.store_coordinator import StoreCoordinator
from pinlater.server.sharding.reload import DesiredShard, open_shards
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ChangeOwners, Command, ListOwners
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.values import NO_OWNERS, Member, Owners
from tests.sharding.faulty import FaultyShard

ONE, TWO = "10.0.0.1:9011", "10.0.0.2:9011"
LOGGER = "pinlater.server.cluster.ownership.ownership"


class Owned(FaultyShard):
    """A shard that servers share."""

    def __init__(self, name: str) -> None:
        super().__init__(MemoryShard(name))
        self.kept = NO_OWNERS
        self.refuses = False
        self.takes_ms = 0  # to change owners
        self.clock = ManualClock(0)

    async def carry_out(self, command: Command[Any]) -> Any:
        if isinstance(command, ListOwners):
            return self.kept
        if isinstance(command, ChangeOwners):
            return self._change(command.known, command.owners)
        return await super().carry_out(command)

    def _change(self, known: Owners, owners: Owners) -> bool:
        if self.refuses:
            raise ShardConnectionFailed("connection refused")
        if known != self.kept:
            return False
        self.kept = owners
        self.clock.advance(ms=self.takes_ms)
        return True


class OwnershipObserver:
    """One server, the first of two, on a shard."""

    def __init__(self, store: Owned, shards: Shards, clock: ManualClock) -> None:
        self.store = store
        self.shards = shards
        self.clock = clock
        store_coordinator = StoreCoordinator(shards, ONE, lambda _: True, lambda _address, _shard: True)
        self.ownership = Ownership(shards, ONE, store_coordinator, lambda _: True)

    async def look(self, *addresses: str) -> None:
        rows = [Member(slot, f"host-{slot}", address, 0, 0) for slot, address in enumerate(addresses)]
        members: Mapping[ShardLanes, Sequence[Member]] = dict.fromkeys(self.shards, rows)
        await self.ownership.look(members)


async def server() -> OwnershipObserver:
    store = Owned("1")
    shards = await open_shards([DesiredShard("1", lambda: store.as_shard())], store.clock, Random(0))
    return OwnershipObserver(store, shards, store.clock)


def moves_in(log: pytest.LogCaptureFixture) -> Counter[tuple[str, str, str]]:
    """Slices by shard, owner before and owner now, as the log has them; and forgets them."""
    found: Counter[tuple[str, str, str]] = Counter()
    for record in log.records:
        if record.getMessage() == "slices have another owner":
            assert record.levelno == logging.INFO
            about = vars(record)
            found[about["shard"], about["before"], about["owner"]] += about["slices"]
    log.clear()
    return found


async def test_each_move_of_slices_is_a_line_of_the_log_with_shard_number_and_both_owners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    seen = await server()
    await seen.look(ONE)
    assert moves_in(caplog) == {("1", "none", ONE): SLICES}
    await seen.look(ONE, TWO)
    assert moves_in(caplog) == {("1", ONE, TWO): SLICES // 2}
    await seen.look(ONE, TWO)
    assert moves_in(caplog) == {}
    await seen.look(ONE)
    assert moves_in(caplog) == {("1", TWO, ONE): SLICES // 2}


async def test_a_move_that_another_server_made_is_logged_and_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    seen = await server()
    seen.store.kept = Owners(1, (ONE,) * SLICES)
    await seen.look(ONE)
    assert moves_in(caplog) == {("1", "none", ONE): SLICES}, "what it reads first"
    assert seen.ownership.moves == 0, "that is no move"
    seen.store.kept = Owners(2, (TWO,) * 8 + (ONE,) * (SLICES - 8))
    await seen.look(ONE, TWO)
    assert moves_in(caplog) == {("1", ONE, TWO): 8}
    assert seen.ownership.moves == 8


async def test_owners_that_cannot_be_changed_are_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    seen = await server()
    seen.store.refuses = True
    await seen.look(ONE)
    [record] = [record for record in caplog.records if record.name == LOGGER]
    assert (record.getMessage(), vars(record)["shard"]) == ("owners could not be changed", "1")
    assert vars(record)["reason"] == "connection refused"


async def test_a_server_that_gives_its_slices_away_logs_their_number_and_how_long_it_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    seen = await server()
    await seen.look(ONE, TWO)
    rows = [Member(1, "host-1", TWO, 0, 0)]
    seen.store.takes_ms = 7
    await seen.ownership.leave(dict.fromkeys(seen.shards, rows))
    assert seen.store.kept.by_slice == (TWO,) * SLICES
    [record] = [record for record in caplog.records if record.getMessage() == "gave its slices away"]
    assert record.levelno == logging.INFO
    assert (vars(record)["slices"], vars(record)["took_ms"]) == (SLICES // 2, 7.0)
