"""A caller that leaves a forwarded call that takes long: the owner is told, and leaves out what it has not begun."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed
from pinlater.server.cluster.forwarding import handshake, messages
from pinlater.server.cluster.forwarding.carry_out import JoinedAnswers
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.sharding.lane import Lane
from pinlater.server.storage.values import ClaimRef, Inserted, JobKey
from tests.forwarding.two_servers import Asker, Owner, request, until


class HeldLane:
    """A lane each of whose calls waits until `go`; notes the items that were begun, and those whose results no caller took."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun: list[int] = []
        self.orphans: list[int] = []
        self.lane: Lane[int, int] = Lane(
            "held", self._execute, batch_max=1, orphaned=lambda item, _: self.orphans.append(item)
        )

    async def _execute(self, items: list[int]) -> Sequence[int | PinLaterError]:
        self.begun += items
        await self.go.wait()
        return items

    def join(self, items: Sequence[int]) -> JoinedAnswers:
        joined = JoinedAnswers(len(items))
        for item, asker in zip(items, joined.askers, strict=True):
            self.lane.submit_for(item, asker)
        return joined


async def test_what_has_not_begun_is_left_out_and_the_result_of_what_has_is_given_back() -> None:
    held = HeldLane()
    joined = held.join([10, 11, 12])
    await until(lambda: held.begun)
    joined.leave([0, 1, 1, 77, -1])
    held.go.set()
    gone, also_gone, stays = await joined
    assert held.begun == [10, 12]
    assert held.orphans == [10]
    assert stays == 12
    assert isinstance(gone, ShardConnectionFailed)
    assert isinstance(also_gone, ShardConnectionFailed)


async def test_a_call_that_all_have_left_is_answered_at_once() -> None:
    held = HeldLane()
    joined = held.join([10, 11])
    joined.leave([0, 1])
    assert len(await joined) == 2
    held.go.set()
    await held.lane.close()
    joined.leave([0])  # too late, and harmless


class LeavableOwner(Owner):
    """Answers none of its calls, and notes who leaves them."""

    def carry_out(
        self, kind: CallKind, shard: str, items: Sequence[Any], begin_by_ms: int, sent_ms: int
    ) -> asyncio.Future[Sequence[Any]]:
        del begin_by_ms, sent_ms
        self.asked.append((kind, shard, list(items)))
        joined = JoinedAnswers(len(items))
        self.answers.append(joined)
        return joined

    def left(self) -> list[int]:
        """The places of the first call whose callers have gone."""
        [first, *_] = self.answers
        assert isinstance(first, JoinedAnswers)
        return [place for place, asker in enumerate(first.askers) if asker.done()]


@pytest.fixture
def owner_class() -> type[Owner]:
    return LeavableOwner


async def two_of_three_leave(asker: Asker, owner: LeavableOwner) -> asyncio.Future[Inserted]:
    calls = [asker.insert(request(number)) for number in range(3)]
    await until(lambda: owner.answers)
    calls[0].cancel()
    calls[2].cancel()
    return calls[1]


async def asked_whether_it_runs(asker: Asker) -> None:
    """So that the next look does not ask again."""
    asker.link.look(ask_after_s=60.0, stall_s=60.0)
    await until(lambda: asker.link.told is not None)


async def test_the_owner_is_told_once_who_left(asker: Asker, owner: LeavableOwner) -> None:
    await asked_whether_it_runs(asker)
    stays = await two_of_three_leave(asker, owner)
    before = asker.link.frames
    asker.link.look(ask_after_s=60.0, stall_s=60.0)
    assert asker.link.frames == before  # a call that was sent just now will be answered soon
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: owner.left() == [0, 2])
    before = asker.link.frames
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    assert asker.link.frames <= before + 1  # whether it runs
    stays.cancel()
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: owner.answers[0].done())
    await until(lambda: not asker.link.unanswered)


async def test_releases_are_carried_out_for_callers_that_have_gone(asker: Asker, owner: LeavableOwner) -> None:
    await asked_whether_it_runs(asker)
    lane: ForwardLane[Any, Any] = ForwardLane(asker.link, CallKind.RELEASE, "1", takes_lists=True)
    caller = lane.submit([ClaimRef(JobKey("q", 1, 1), "token")])
    await until(lambda: owner.answers)
    caller.cancel()
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    asker.insert(request(9))
    await until(lambda: len(owner.answers) == 2)
    assert owner.left() == []


@pytest.mark.parametrize("versions", [(6, 6), (5, 7), (7, 9)])
def test_servers_of_neighbouring_versions_speak_the_newest_that_both_know(versions: tuple[int, int]) -> None:
    asked = handshake.hello("a:1")._replace(versions=versions)
    answered, _ = handshake.welcome(asked, [])
    assert answered.version == min(versions[1], messages.VERSION)
