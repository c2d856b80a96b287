"""Calls that come too late by the clock of the owner alone: nothing of them was begun, so the asking server goes to the shard itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pinlater.domain.errors import PinLaterError, ShardConnectionFailed, TooManyWaiting
from pinlater.server.cluster.forwarding.carry_out import CarryOut
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.sharding.lane import Lane
from pinlater.server.storage.values import ClaimRef, JobKey
from pinlater.simulation.isolation import collected_at_the_end
from tests.forwarding.test_carry_out import FakeShards
from tests.forwarding.two_servers import Asker, Owner, request, until


class AheadOwner(Owner):
    """Its clock is ahead by more than a call may wait."""

    def carry_out(
        self, kind: CallKind, shard: str, items: Sequence[Any], begin_by_ms: int, sent_ms: int
    ) -> asyncio.Future[Sequence[Any]]:
        self.asked.append((kind, shard, list(items)))
        shards: Any = FakeShards()
        return CarryOut(shards, lambda _: None)(kind, shard, items, begin_by_ms - 120_000, sent_ms)


class OwnLane:
    """The lane of the asking server."""

    def __init__(self, *, waiting_max: int = 100) -> None:
        self.began: list[Any] = []
        self.orphans: list[Any] = []
        self.go = asyncio.Event()
        self.lane: Lane[Any, Any] = Lane(
            "own", self._execute, waiting_max=waiting_max, orphaned=lambda item, _: self.orphans.append(item)
        )

    async def _execute(self, items: list[Any]) -> Sequence[Any]:
        self.began += items
        await self.go.wait()
        return [f"done {len(self.began)}" for _ in items]


@pytest.fixture
def owner_class() -> type[Owner]:
    return AheadOwner


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    with collected_at_the_end():
        yield


def lane_over(asker: Asker, own: OwnLane | None, kind: CallKind = CallKind.INSERT) -> ForwardLane[Any, Any]:
    return ForwardLane(asker.link, kind, "1", own=lambda: None if own is None else own.lane)


async def test_they_are_carried_out_by_the_asking_server(
    asker: Asker, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    own = OwnLane()
    own.go.set()
    assert await lane_over(asker, own).submit(request(1)) == "done 1"
    claims = [ClaimRef(JobKey("q", 1, number), "token") for number in range(2)]
    assert await lane_over(asker, own, CallKind.RELEASE).submit(claims) == "done 2"
    assert own.began == [request(1), claims]
    assert [kind for kind, *_ in owner.asked] == [CallKind.INSERT, CallKind.RELEASE]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert {record.__dict__["server"] for record in warnings} == {asker.link.address}


async def test_what_callers_that_have_gone_asked_for_is_not_begun_and_what_it_brings_goes_back(
    asker: Asker, owner: Owner
) -> None:
    own = OwnLane()
    lane = lane_over(asker, own)
    calls = [lane.submit(request(number)) for number in range(3)]
    await asyncio.sleep(0)  # they are sent
    calls[0].cancel()
    await until(lambda: own.began)
    assert own.began == [request(1), request(2)]
    calls[1].cancel()
    own.go.set()
    assert await calls[2] == "done 2"
    assert own.orphans == [request(1)]
    assert lane.waiting == 0


async def test_they_fail_where_the_asking_server_can_not_use_the_shard(asker: Asker) -> None:
    with pytest.raises(ShardConnectionFailed, match="too late") as failed:
        await lane_over(asker, None).submit(request(1))
    assert failed.value.detail == ShardConnectionFailed.detail


async def test_they_fail_if_their_time_is_over(asker: Asker) -> None:
    own = OwnLane()
    call = lane_over(asker, own).submit(request(1))
    asker.link.limit_s = 0.0
    with pytest.raises(ShardConnectionFailed, match="too late"):
        await call
    assert own.began == []


async def test_those_for_which_there_is_no_place_fail_alone(asker: Asker) -> None:
    own = OwnLane(waiting_max=1)
    lane = lane_over(asker, own)
    calls: list[asyncio.Future[Any]] = [lane.submit(request(number)) for number in range(2)]
    own.go.set()
    with pytest.raises(TooManyWaiting):
        await calls[1]
    assert await calls[0] == "done 1"


async def test_calls_that_fail_otherwise_are_not_begun_again(asker: Asker, owner: Owner) -> None:
    """They may have been carried out."""
    own = OwnLane()
    owner.listener.carry_out = fails_with(ShardConnectionFailed("the connection is gone"))
    with pytest.raises(ShardConnectionFailed, match="gone"):
        await lane_over(asker, own).submit(request(1))
    assert own.began == []


def fails_with(error: PinLaterError) -> Any:
    def carry_out(*_: Any) -> asyncio.Future[Sequence[Any]]:
        future: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    return carry_out
