"""How long one look at a shard holds for the sweeps."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from pinlater.domain.clock import ManualClock
from pinlater.server.storage.snapshots import KEPT_S, KEPT_UNCHANGED_S, Snapshots


class ChangeCount(NamedTuple):
    """What a shard answers: how much has been changed in it."""

    changes: int


class Shard:
    """A shard that is looked at."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.looks = 0
        self.changes = 0  # by all servers
        self.own = 0
        self.told: Hashable | None = 0
        self.snapshots = Snapshots(self.look, lambda: self.own, self.clock.monotonic)
        self.snapshots.others = lambda: self.told

    async def look(self) -> ChangeCount:
        self.looks += 1
        return ChangeCount(self.changes)


async def test_a_look_holds_for_a_second_where_others_do_not_say_what_they_change() -> None:
    shard = Shard()
    shard.told = None
    await shard.snapshots.latest()
    await shard.snapshots.latest()
    assert shard.looks == 1
    shard.clock.advance(seconds=KEPT_S)
    await shard.snapshots.latest()
    assert shard.looks == 2
    assert await shard.snapshots.state() is None


async def test_a_look_holds_for_half_a_minute_while_no_server_says_that_it_changed_something() -> None:
    shard = Shard()
    before = await shard.snapshots.state()
    shard.clock.advance(seconds=KEPT_UNCHANGED_S - 1)
    assert await shard.snapshots.state() == before
    assert shard.looks == 1
    shard.clock.advance(seconds=1)
    assert await shard.snapshots.state() == before
    assert shard.looks == 2


async def test_a_change_by_any_server_ends_a_look_and_the_state() -> None:
    shard = Shard()
    states = [await shard.snapshots.state()]
    shard.own += 1
    states.append(await shard.snapshots.state())
    shard.told = 1
    shard.clock.advance(seconds=KEPT_S)
    states.append(await shard.snapshots.state())
    assert shard.looks == 3
    shard.changes += 1  # by none that said so
    shard.clock.advance(seconds=KEPT_UNCHANGED_S)
    states.append(await shard.snapshots.state())
    assert len(set(states)) == 4


async def test_a_server_that_is_not_heard_any_more_ends_a_look() -> None:
    shard = Shard()
    await shard.snapshots.latest()
    shard.clock.advance(seconds=KEPT_S)
    await shard.snapshots.latest()
    assert shard.looks == 1
    shard.told = None
    await shard.snapshots.latest()
    assert shard.looks == 2
