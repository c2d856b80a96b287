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
from pinlater.server.link.messages import BadMessage, Part, frame, message_of_asking
from pinlater.server.sharding.lane import Lane
from pinlater.server.storage.values import NO_END_MS, ClaimRef, Inserted, JobKey
from tests.forwarding.two_servers import Asker, Owner, encoded_items, end_of, proven, request, until


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
            self.lane.submit(item, asker)
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
        return places_left(self.answers[0])


def places_left(answers: asyncio.Future[Sequence[Any]]) -> list[int]:
    """The places of a call whose callers have gone."""
    assert isinstance(answers, JoinedAnswers)
    return [place for place, asker in enumerate(answers.askers) if asker.done()]


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


@pytest.mark.parametrize("version", [messages.OLDEST_VERSION, messages.VERSION])
async def test_an_older_server_is_told_only_what_it_knows(
    owner: LeavableOwner, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """It closes the connection at a field more: the golden frames have no more."""
    monkeypatch.setattr(handshake, "VERSION", version)
    monkeypatch.setattr(owner.listener, "told", lambda: messages.Told((), {}, 3, waiting={"emails": 70}))
    asker = Asker()
    await asker.connect(owner)
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: asker.link.told is not None)
    assert asker.link.told is not None
    assert asker.link.told.queue_changes == 3
    assert asker.link.told.waiting == ({"emails": 70} if version == messages.VERSION else {})
    asker.link.abort()


async def test_releases_are_carried_out_for_callers_that_have_gone(asker: Asker, owner: LeavableOwner) -> None:
    await asked_whether_it_runs(asker)
    lane: ForwardLane[Any, Any] = ForwardLane(asker.link, CallKind.RELEASE, "1")
    caller = lane.submit([ClaimRef(JobKey("q", 1, 1), "token")])
    await until(lambda: owner.answers)
    caller.cancel()
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    asker.insert(request(9))
    await until(lambda: len(owner.answers) == 2)
    assert owner.left() == []


@pytest.mark.parametrize("versions", [(6, 6), (6, 7), (7, 9)])
def test_servers_of_neighbouring_versions_speak_the_newest_that_both_know(versions: tuple[int, int]) -> None:
    asked = handshake.hello("a:1")._replace(versions=versions)
    answered, _ = handshake.welcome(asked, [])
    assert answered.version == min(versions[1], messages.VERSION)


async def test_of_very_many_callers_that_left_the_owner_is_told_in_several_messages(
    asker: Asker, owner: LeavableOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "LEFT_PLACES_MAX", 3)
    await asked_whether_it_runs(asker)
    for calls_before in range(2):
        calls = [asker.insert(request(number)) for number in range(5)]
        await until(lambda before=calls_before: len(owner.answers) == before + 1)
        for call in calls[1:]:
            call.cancel()
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: all(places_left(answers) == [1, 2, 3, 4] for answers in owner.answers))
    assert asker.link.usable


def many_left(calls: int, places: int) -> Part:
    """A message about this number of calls, with `places` places of each."""
    told = [messages.CallersLeft(number, [0] * places) for number in range(1, calls + 1)]
    return message_of_asking(messages.LEFT, told)


@pytest.mark.parametrize(
    "part",
    [
        many_left(1, messages.LEFT_PLACES_MAX + 1),
        many_left(messages.LEFT_PLACES_MAX // 100, 101),
        many_left(100_000, 0),
    ],
)
def test_a_message_about_more_callers_than_a_server_tells_at_once_is_refused(part: Part) -> None:
    with pytest.raises(BadMessage, match="callers that left"):
        messages.callers_left_of(part)


def test_the_longest_message_about_callers_that_left_is_taken() -> None:
    """A caller of each call, with numbers and places as long as they can be."""
    left = [messages.CallersLeft(2**63 - 1, [2**32 - 1])] * messages.LEFT_PLACES_MAX
    [part] = messages.callers_left(left)
    assert messages.callers_left_of(part) == left


def test_a_long_message_about_callers_that_left_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "_callers_left", None)
    with pytest.raises(BadMessage, match="bytes about callers that left"):
        messages.callers_left_of(many_left(1, 1_000_000))


@pytest.mark.parametrize("parts", [[many_left(1, messages.LEFT_PLACES_MAX + 1)], [many_left(1, 1)] * 2])
async def test_a_server_that_tells_of_too_many_callers_that_left_is_disconnected(
    owner: LeavableOwner, parts: list[Part]
) -> None:
    reader, writer = await proven(owner)
    writer.write(frame([Part(1, CallKind.INSERT, "1", encoded_items([request(1)]), NO_END_MS)]))
    await until(lambda: owner.answers)
    writer.write(frame(parts))
    await end_of(reader)
    writer.close()
    assert places_left(owner.answers[0]) == []
