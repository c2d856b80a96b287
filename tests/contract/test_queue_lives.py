"""A shard takes no queue, and no setting, from before the newest deletion that it knows of; of the rest the newest holds."""

from __future__ import annotations

from itertools import permutations

import pytest

from pinlater.domain.queue import Life, Queue, QueueConfig, Versions
from pinlater.server.storage.commands import ConfigureQueue, DeleteQueues, ListQueues, MergeQueues, create_queues
from pinlater.server.storage.values import DELETION_KEPT_MS
from tests.contract.desk import QUEUE, Desk

LATE_MS = 1_767_225_600_000
CONFIG = QueueConfig(max_backlog=7)


def version(at_ms: int) -> str:
    return Versions().following(at_ms, 1)


def queue_at(at_ms: int, life: Life, *, paused: bool = True, name: str = "q") -> Queue:
    """With settings and a pause of that time."""
    return Queue(name, CONFIG._replace(max_backlog=at_ms), paused, Versions(version(at_ms), version(at_ms)), life)


async def merged(desk: Desk, queue: Queue) -> Queue:
    [answer] = await desk.shard.submit(MergeQueues([queue], desk.now))
    kept = await kept_by(desk, queue.name)
    assert kept == (None if answer.life.over else answer)
    return answer


async def kept_by(desk: Desk, name: str = "q") -> Queue | None:
    return next((queue for queue in await desk.shard.submit(ListQueues()) if queue.name == name), None)


async def test_a_queue_is_made_with_the_settings_that_it_is_given_with(desk: Desk) -> None:
    given = queue_at(5, Life(3, 2))
    assert await merged(desk, given) == given
    assert await merged(desk, Queue("q")) == given
    await desk.put(queue="q")
    assert len(await desk.claim(queue="q")) == 1


async def test_a_queue_takes_what_is_newer_and_keeps_its_jobs(desk: Desk) -> None:
    await merged(desk, queue_at(5, Life(3, 0)))
    key = await desk.put(queue="q")
    assert await merged(desk, queue_at(4, Life(2, 0))) == queue_at(5, Life(3, 0))
    assert await merged(desk, queue_at(6, Life(4, 0), paused=False)) == queue_at(6, Life(4, 0), paused=False)
    assert (await desk.take(queue="q")).key == key


@pytest.mark.differs("ON DUPLICATE KEY UPDATE")
async def test_rows_of_one_queue_become_the_same_in_whichever_order_they_come(desk: Desk) -> None:
    rows = [
        queue_at(5, Life(3, 0)),
        queue_at(9, Life(8, 7, 8)),
        Queue("q", life=Life(12, 10)),
        queue_at(11, Life(11, 0, 11)),
    ]
    for number, order in enumerate(permutations(rows)):
        name = f"q{number}"
        for row in order:
            await desk.shard.submit(MergeQueues([row._replace(name=name)], desk.now))
        kept = await kept_by(desk, name)
        assert kept == queue_at(11, Life(12, 10, 11), name=name)


async def test_a_queue_that_was_deleted_since_it_was_made_is_not_made_again(desk: Desk) -> None:
    """A server that stood still read it before."""
    await merged(desk, queue_at(LATE_MS, Life(LATE_MS)))
    assert await desk.shard.submit(DeleteQueues(["q", "missing"], LATE_MS + 1)) == LATE_MS
    for name in ("q", "missing"):
        for made_ms in (0, LATE_MS, LATE_MS + 1):
            answer = await merged(desk, queue_at(LATE_MS, Life(made_ms), name=name))
            assert answer.life == Life(made_ms, LATE_MS + 1)
    [answer] = await desk.shard.submit(create_queues(["q"], desk.now, life=Life(LATE_MS + 1)))
    assert answer.life.over
    assert [queue.name for queue in await desk.shard.submit(ListQueues())] == [QUEUE]


async def test_a_queue_that_is_made_again_has_no_setting_from_before(desk: Desk) -> None:
    before = queue_at(LATE_MS, Life(LATE_MS))
    await merged(desk, before)
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS + 1))
    [made] = await desk.shard.submit(create_queues(["q"], desk.now, life=Life(LATE_MS + 2)))
    assert made == Queue("q", life=Life(LATE_MS + 2, LATE_MS + 1))
    assert await merged(desk, before) == made
    await desk.shard.submit(ConfigureQueue("q", config=CONFIG, paused=True, version=version(LATE_MS + 1)))
    assert await kept_by(desk) == made
    await desk.shard.submit(ConfigureQueue("q", paused=True, version=version(LATE_MS + 2)))
    assert await kept_by(desk) == made._replace(paused=True, versions=Versions("", version(LATE_MS + 2)))


async def test_a_shard_that_was_away_drops_settings_from_before_a_deletion_and_keeps_its_jobs(desk: Desk) -> None:
    """It missed the deletion, whose caller was told so."""
    await merged(desk, queue_at(5, Life(3)))
    await desk.put(queue="q")
    assert await merged(desk, Queue("q", life=Life(7, 6))) == Queue("q", life=Life(7, 6))
    assert len(await desk.claim(queue="q")) == 1


async def test_a_deletion_that_comes_late_leaves_a_queue_that_was_made_since(desk: Desk) -> None:
    """The answer says how late it is, so that its server can decide anew."""
    made = await merged(desk, queue_at(LATE_MS, Life(LATE_MS)))
    assert await desk.shard.submit(DeleteQueues(["q"], LATE_MS - 1)) == LATE_MS
    assert await kept_by(desk) == made
    assert await desk.shard.submit(DeleteQueues(["q"], LATE_MS)) == LATE_MS
    assert await kept_by(desk) is None


async def test_a_late_deletion_does_not_take_back_a_later_one(desk: Desk) -> None:
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS))
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS - 2))
    assert (await merged(desk, Queue("q", life=Life(LATE_MS - 1)))).life.over


@pytest.mark.parametrize("settings", [True, False])
async def test_a_deletion_answers_the_newest_time_of_what_it_deleted(desk: Desk, settings: bool) -> None:
    await merged(desk, queue_at(9, Life(3, 2)) if settings else Queue("q", life=Life(3, 2)))
    await merged(desk, Queue("other", life=Life(5)))
    assert await desk.shard.submit(DeleteQueues(["q", "other", "missing"])) == (9 if settings else 5)
    assert await desk.shard.submit(DeleteQueues(["q"])) == 0
    assert not (await merged(desk, Queue("q"))).life.over


async def test_a_deletion_is_remembered_as_later_than_all_that_the_queue_carried(desk: Desk) -> None:
    """Settings of a server whose clock is ahead stay away from the next queue, though the answer that names their time is lost."""
    before = await merged(desk, queue_at(LATE_MS, Life(LATE_MS - 5)))
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS - 3))  # its answer is lost
    assert await desk.shard.submit(DeleteQueues(["q"], LATE_MS - 2)) == 0
    assert (await merged(desk, Queue("q", life=Life(LATE_MS)))).life.over
    await merged(desk, Queue("q", life=Life(LATE_MS + 2)))
    kept = await merged(desk, before)
    assert (kept.config, kept.paused) == (QueueConfig(), False)


async def test_a_deletion_is_forgotten_by_one_that_comes_a_day_later(desk: Desk) -> None:
    await desk.shard.submit(DeleteQueues(["old", "older"], LATE_MS))
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS, now_ms=LATE_MS + DELETION_KEPT_MS))
    assert (await merged(desk, Queue("old", life=Life(LATE_MS)))).life.over
    await desk.shard.submit(DeleteQueues(["q"], LATE_MS, now_ms=LATE_MS + DELETION_KEPT_MS + 1))
    assert not (await merged(desk, Queue("old", life=Life(LATE_MS)))).life.over


async def test_a_queue_with_a_time_far_ahead_makes_no_shard_forget_deletions(desk: Desk) -> None:
    """A server whose clock was days ahead created or changed it, so its deletion is later still."""
    await desk.shard.submit(DeleteQueues(["old"], LATE_MS, now_ms=LATE_MS))
    await desk.shard.submit(DeleteQueues(["ahead"], LATE_MS + 3 * DELETION_KEPT_MS, now_ms=LATE_MS))
    assert (await merged(desk, Queue("old", life=Life(LATE_MS)))).life.over


@pytest.mark.differs("HSCAN in a script")
async def test_many_queues_are_merged_in_one_call(desk: Desk) -> None:
    """Missing ones, changed ones, deleted ones, and one that comes twice."""
    await desk.shard.submit(create_queues([f"q{number}" for number in range(300)], desk.now))
    await desk.shard.submit(DeleteQueues([f"q{number}" for number in range(200)], LATE_MS))
    given = [queue_at(5, Life(LATE_MS + number % 2), name=f"q{number}") for number in range(400)]
    answers = await desk.shard.submit(MergeQueues([*given, given[399]], desk.now))
    assert [answer.name for answer in answers] == [queue.name for queue in [*given, given[399]]]
    assert [answer.life.over for answer in answers[:200]] == [True, False] * 100
    assert not any(answer.life.over for answer in answers[200:])
    kept = await desk.shard.submit(ListQueues())
    assert sorted(queue for queue in kept if queue.name != QUEUE) == sorted(
        {answer for answer in answers if not answer.life.over}
    )


async def test_deletions_are_remembered_after_a_restart(desk: Desk) -> None:
    if not desk.shard.capabilities.durable:
        pytest.skip("this store keeps nothing after its process, and says so")
    await desk.shard.submit(DeleteQueues([QUEUE], LATE_MS))
    made = await merged(desk, Queue("q", life=Life(4, 3)))
    await desk.reopen()
    assert await kept_by(desk) == made
    assert (await merged(desk, Queue(QUEUE, life=Life(LATE_MS)))).life.over
