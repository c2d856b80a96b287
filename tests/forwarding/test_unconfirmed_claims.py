"""Claims whose answer is lost between two servers go back; those whose answer came don't."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.domain.errors import OutcomeUnknown
from pinlater.server.cluster.forwarding import forwarding as forwarding_module
from pinlater.server.cluster.forwarding import messages
from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.forwarding import Forwarding
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.unconfirmed_claims import (
    KEPT_S,
    AnsweredClaims,
    ClaimsOfLostConnections,
    Lost,
)
from pinlater.server.link.messages import NOTHING, PartAnswer
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.server.sharding.shards import ClaimRequest
from pinlater.server.storage.values import Claimed
from tests.forwarding.two_servers import SECRET, Asker, Owner, claimed, until, wish


class PausedLink(PeerConnection):
    """A connection that a test pauses by its `transport`: what the other server writes lies in the socket."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        super().connection_made(transport)


def claim_lane(asker: Asker) -> ForwardLane[ClaimRequest, Claimed]:
    return lane_over(asker.link)


def lane_over(link: PeerConnection) -> ForwardLane[ClaimRequest, Claimed]:
    return ForwardLane(link, CallKind.CLAIM, "1")


def ids_of(owner: Owner) -> list[int]:
    return [job.id for answers in owner.undelivered for answer in answers for jobs in answer.jobs for job in jobs]


def blind(asker: Asker) -> None:
    """What the owner answers from now on comes no further than this server's socket."""
    asker.transport.pause_reading()


async def answer(owner: Owner, index: int, job_id: int) -> None:
    await until(lambda: len(owner.answers) > index)
    owner.answers[index].set_result([claimed(job_id)])


async def test_claims_that_no_connection_takes_are_given_back(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = claim_lane(asker).submit(wish("a"))
    await until(lambda: owner.answers)
    asker.link.abort()
    with pytest.raises(OutcomeUnknown):
        await asked
    await until(lambda: not owner.listener.connections)
    owner.answers[0].set_result([claimed(1)])
    await until(lambda: ids_of(owner) == [1])


async def test_after_a_lost_connection_the_next_one_tells_which_claims_came(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    lane = claim_lane(asker)
    came = lane.submit(wish("a"))
    await answer(owner, 0, 1)
    assert (await came).jobs[0][0].id == 1
    blind(asker)
    lost = lane.submit(wish("b"))
    await answer(owner, 1, 2)
    [connection] = owner.listener.connections
    await until(lambda: len(connection.unconfirmed) == 2)
    asker.link.abort()
    with pytest.raises(OutcomeUnknown):
        await lost
    assert ids_of(owner) == []  # the owner can't know which of them came
    for _ in range(2):  # the second connection says it again
        await asker.connect(owner, lost=[asker.link.as_lost, Lost(b"of another owner", 0)])
        await until(lambda: ids_of(owner) == [2])
        asker.link.abort()
    await until(lambda: not owner.listener.connections)
    assert ids_of(owner) == [2]


async def test_a_connection_whose_end_only_one_side_has_seen_ends_on_the_other_with_the_next_one(owner: Owner) -> None:
    owner.at_once = False
    first, second = Asker(), Asker()
    await first.connect(owner)
    blind(first)
    lost = claim_lane(first).submit(wish("a"))
    await answer(owner, 0, 1)
    [connection] = owner.listener.connections
    await until(lambda: len(connection.unconfirmed) == 1)
    under_way = claim_lane(first).submit(wish("b"))
    await until(lambda: len(owner.answers) == 2)
    await second.connect(owner, lost=[first.link.as_lost])
    await until(lambda: ids_of(owner) == [1])
    await until(lambda: len(owner.listener.connections) == 1)
    owner.answers[1].set_result([claimed(2)])
    await until(lambda: ids_of(owner) == [1, 2])
    first.link.abort()
    for asked in (lost, under_way):
        with pytest.raises(OutcomeUnknown):
            await asked
    second.link.abort()
    await until(lambda: not owner.listener.connections)


async def test_an_owner_forgets_claims_once_it_hears_that_their_answers_came(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    asked = claim_lane(asker).submit(wish("a"))
    await answer(owner, 0, 1)
    await asked
    [connection] = owner.listener.connections
    assert len(connection.unconfirmed) == 1
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: len(connection.unconfirmed) == 0)


async def test_an_answer_that_can_not_be_encoded_keeps_no_other_back_and_its_claims_go_back(
    asker: Asker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode, calls = messages.answer, list[int]()

    def broken_once(number: int, answers: Sequence[object], version: int) -> PartAnswer:
        calls.append(number)
        if len(calls) == 1:
            raise UnicodeEncodeError("utf-8", "", 0, 1, "no such text")
        return encode(number, answers, version)

    monkeypatch.setattr(messages, "answer", broken_once)
    owner.at_once = False
    lane = claim_lane(asker)
    asked = [lane.submit(wish("a"))]
    await until(lambda: len(owner.answers) == 1)
    asked.append(lane.submit(wish("b")))
    await until(lambda: len(owner.answers) == 2)
    for job_id, future in enumerate(owner.answers):
        future.set_result([claimed(job_id)])
    with pytest.raises(OutcomeUnknown):
        await asked[0]
    assert (await asked[1]).jobs[0][0].id == 1
    assert ids_of(owner) == [0]


async def test_an_answer_that_can_not_be_read_does_not_count_as_taken(
    asker: Asker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "answer", lambda number, *_: PartAnswer(number, NOTHING, {}))
    owner.at_once = False
    asked = claim_lane(asker).submit(wish("a"))
    await answer(owner, 0, 1)
    with pytest.raises(OutcomeUnknown):
        await asked
    assert asker.link.as_lost.taken == 0


class NoShards(list[Any]):
    """What connections need of a server's shards."""

    settings = ShardingSettings(call_timeout_ms=1_000)
    clock = SystemClock()


@contextlib.asynccontextmanager
async def forwarding_to(owner: Owner) -> AsyncIterator[tuple[Forwarding, dict[str, bytes]]]:
    forwarding = Forwarding(cast("Any", NoShards()), "127.0.0.1:1", lambda _: [])
    peers = {f"127.0.0.1:{owner.port}": SECRET}
    forwarding.know(peers)
    await until(lambda: forwarding.connections)
    try:
        yield forwarding, peers
    finally:
        await forwarding.close()


async def test_claims_whose_answer_is_lost_go_back_though_the_owner_was_no_peer_for_a_while(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding_module, "PeerConnection", PausedLink)
    owner.at_once = False
    async with forwarding_to(owner) as (forwarding, peers):
        [link] = forwarding.connections.values()
        assert isinstance(link, PausedLink)
        link.transport.pause_reading()
        lost = lane_over(link).submit(wish("a"))
        await answer(owner, 0, 1)
        [connection] = owner.listener.connections
        await until(lambda: len(connection.unconfirmed) == 1)
        forwarding.know({})
        await until(lambda: not forwarding.connections)
        link.transport.abort()
        with pytest.raises(OutcomeUnknown):
            await lost
        forwarding.know(peers)
        await until(lambda: ids_of(owner) == [1])


async def test_a_call_to_a_server_that_is_no_peer_any_more_ends_in_time(owner: Owner) -> None:
    owner.at_once = False
    async with forwarding_to(owner) as (forwarding, _):
        [link] = forwarding.connections.values()
        asked = lane_over(link).submit(wish("a"))
        await until(lambda: owner.answers)
        forwarding.know({})

        def has_ended() -> bool:
            forwarding.look_at_calls()
            return asked.done()

        await until(has_ended)
        with pytest.raises(OutcomeUnknown):
            await asked
        await until(lambda: link.ended.is_set())  # a server that is gone for good would never end it


def answered(place: int) -> AnsweredClaims:
    return AnsweredClaims("1", [wish(str(place))], [claimed(place)])


def test_claims_of_lost_connections_are_kept_without_bodies_up_to_a_time_and_a_number() -> None:
    now_s = [time.monotonic()]
    back: list[AnsweredClaims] = []
    lost = ClaimsOfLostConnections(lambda: now_s[0], back.append)

    def keep(nonce: bytes) -> None:
        lost.keep(nonce, [(number, answered(number)) for number in (2, 3)])

    keep(b"first")
    lost.settle(Lost(b"first", 2))
    [only] = back
    answers: Any = only.answers
    assert (answers[0].jobs[0][0].id, answers[0].jobs[0][0].body) == (3, b"")
    back.clear()
    keep(b"second")
    now_s[0] += KEPT_S
    lost.settle(Lost(b"second", 0))
    assert back == []
    for number in range(1_000):
        keep(b"%d" % number)
    lost.settle(Lost(b"999", 0))
    assert [claims.requests for claims in back] == [[wish("2")], [wish("3")]]
    for number in range(999):
        lost.settle(Lost(b"%d" % number, 0))
    assert len(back) <= 2 * 256


async def test_a_call_says_until_when_it_may_be_begun(asker: Asker, owner: Owner) -> None:
    owner.at_once = False
    before_ms = int(time.time() * 1000)
    asked = claim_lane(asker).submit(wish("a"))
    await answer(owner, 0, 1)
    await asked
    [begin_by_ms] = owner.begin_by_ms
    assert 50_000 <= begin_by_ms - before_ms <= 90_000
    await asyncio.sleep(0)
