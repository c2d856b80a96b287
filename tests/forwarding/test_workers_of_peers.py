"""What a server asks another one about workers, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.domain.workers import LostClaim, ServerWorkers, WorkerInfo, WorkerQueue, WorkerStatus
from pinlater.server.cluster.forwarding import handshake, messages, workers_elsewhere
from pinlater.server.cluster.forwarding.workers_elsewhere import WorkersElsewhere
from pinlater.server.link.messages import BadMessage, decoded
from tests.forwarding.two_servers import Asker, Owner, request, until

STATUS = WorkerStatus(
    "w",
    7,
    250,
    [WorkerQueue("q", 1, 2, 3, 4, 5, 6, 7)],
    30_000,
    WorkerInfo("python", "1.0", "höst", 2**40, 16, 3, 2**41),
    1_000,
    [LostClaim("q", "q:s1:p1:1", 5)],
)
NOTHING = ServerWorkers([], [], "owner", 2, 3, 4, 5)


def knows(owner: Owner, number: int) -> list[int]:
    """The owner knows that number of workers. Returns how many it is asked for, question by question."""
    asked = []

    async def workers(workers_max: int) -> ServerWorkers:
        asked.append(workers_max)
        return NOTHING._replace(workers=[STATUS._replace(process=each) for each in range(number)][:workers_max])

    owner.listener.workers = workers
    return asked


@pytest.mark.parametrize("number", [0, 1, 250, 1_001])
async def test_a_server_tells_the_workers_that_it_knows(asker: Asker, owner: Owner, number: int) -> None:
    asked = knows(owner, number)
    found = await asker.link.ask_workers(2_000)
    assert found == NOTHING._replace(workers=[STATUS._replace(process=each) for each in range(number)])
    assert asked == [2_000]


@pytest.mark.parametrize(("version", "times"), [(6, 0), (7, 0), (8, 7)])
async def test_an_older_server_is_told_only_what_it_knows_of_workers(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, version: int, times: int
) -> None:
    """It closes the connection at a field more: the golden frames have no more."""
    monkeypatch.setattr(handshake, "VERSION", version)
    knows(owner, 1)
    asker = Asker()
    await asker.connect(owner)
    [status] = (await asker.link.ask_workers(10)).workers
    assert status == STATUS._replace(process=0, queues=[STATUS.queues[0]._replace(timed_out_times=times)])
    asker.link.abort()


async def test_calls_go_on_between_the_pages_of_a_long_answer(asker: Asker, owner: Owner) -> None:
    knows(owner, 2_000)
    found, inserted = await asyncio.gather(asker.link.ask_workers(2_000), asker.insert(request(1)))
    assert (len(found.workers), inserted.ids) == (2_000, [1])


async def test_a_question_ends_with_its_connection(asker: Asker, owner: Owner) -> None:
    """Also one to a server that stands still."""
    asked_for, never = asyncio.Event(), asyncio.Event()

    async def workers(_: int) -> ServerWorkers:
        asked_for.set()
        await never.wait()
        return NOTHING

    owner.listener.workers = workers
    asked = asyncio.create_task(asker.link.ask_workers(10))
    await asked_for.wait()
    asker.link.abort()
    with pytest.raises(ConnectionError):
        await asked
    with pytest.raises(ConnectionError):
        await asker.link.ask_workers(10)


async def test_a_late_answer_is_not_taken_for_that_to_the_next_question(asker: Asker, owner: Owner) -> None:
    answers, told = iter(["late", "owner"]), []

    async def workers(_: int) -> ServerWorkers:
        told.append(next(answers))
        return NOTHING._replace(server_id=told[-1])

    owner.listener.workers = workers
    [incoming] = owner.listener.connections
    asker.transport.pause_reading()
    late = asyncio.create_task(asker.link.ask_workers(10))
    await until(lambda: told == ["late"])
    written = incoming.written_bytes
    late.cancel()
    asked = asyncio.create_task(asker.link.ask_workers(10))
    await until(lambda: told == ["late", "owner"] and incoming.written_bytes > written)
    asker.transport.resume_reading()
    assert (await asked).server_id == "owner"


async def test_a_server_that_tells_more_than_it_was_asked_for_is_disconnected(asker: Asker, owner: Owner) -> None:
    async def workers(_: int) -> ServerWorkers:
        return NOTHING._replace(workers=[STATUS] * 11)

    owner.listener.workers = workers
    with pytest.raises(ConnectionError):
        await asker.link.ask_workers(10)
    assert asker.link.ended.is_set()


def test_what_is_no_message_about_workers_is_refused() -> None:
    for raw in (b"\xc0", b"\x93\x01\x02", b"\x92\x01\xa1x"):
        with pytest.raises(BadMessage):
            decoded(messages.WORKERS_PAGE, raw)


async def test_calls_at_the_same_time_share_one_question(asker: Asker, owner: Owner) -> None:
    asked = knows(owner, 3)
    elsewhere = WorkersElsewhere(lambda: [asker.link])
    answers = await asyncio.gather(*(elsewhere.ask() for _ in range(5)))
    assert len(asked) == 1
    assert [[len(each.workers) for each in answer] for answer in answers] == [[3]] * 5
    assert len(await elsewhere.ask()) == 1
    assert len(asked) == 2


async def test_a_caller_that_goes_does_not_end_the_question_of_the_others(asker: Asker, owner: Owner) -> None:
    knows(owner, 3)
    elsewhere = WorkersElsewhere(lambda: [asker.link])
    one, two = asyncio.create_task(elsewhere.ask()), asyncio.create_task(elsewhere.ask())
    await asyncio.sleep(0)
    one.cancel()
    assert len((await two)[0].workers) == 3


async def test_a_server_that_does_not_answer_is_left_out(
    asker: Asker, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_elsewhere, "ANSWER_S", 0.05)
    never = asyncio.Event()

    async def workers(_: int) -> ServerWorkers:
        await never.wait()
        return NOTHING

    owner.listener.workers = workers
    elsewhere = WorkersElsewhere(lambda: [asker.link])
    assert await elsewhere.ask() == []
    knows(owner, 2)
    assert [len(each.workers) for each in await elsewhere.ask()] == [2]
