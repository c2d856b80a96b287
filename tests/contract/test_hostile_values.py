"""Values at the edges of what the wire can carry. None of them may be refused, changed or mistaken for SQL.

The values of a test come one after the other to one store: an empty one for each would cost more than all that is done with them.
"""

from __future__ import annotations

import pytest

from pinlater.domain.job import JobState
from pinlater.server.storage.commands import DeleteJobs, DeleteQueues
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import JobCheckpoint, JobKey, NewJob
from tests.contract.desk import QUEUE, Desk, unique

pytestmark = pytest.mark.differs("character sets, escapes, and numbers and texts in JSON and in scripts")

I64_MAX, I64_MIN = 2**63 - 1, -(2**63)
TEXTS = [
    "",
    "\x00",
    "before\x00after",
    "\ufeffbom",
    "\ufffe\uffff",
    "😀" * 10,
    "e\u0301\u202e\u200b",
    "'; DROP TABLE jobs; --",
    "%s %d {} \\ \" '",
    "\r\n\t\x1b[31m",
    "\x7f\x80\x85\u2028",
]


async def test_bodies_come_back_byte_for_byte(desk: Desk) -> None:
    umbrellas = "☂".encode() * 100
    for body in (b"", bytes(range(256)), b"\x00" * 10, b"\xff\xfe\xc3\x28", b"'; DROP TABLE jobs; --", umbrellas):
        held = await desk.put_and_take(body)
        assert held.job.body == body
        assert (await desk.look(held.key)).body == body

        await desk.checkpoint(JobCheckpoint(held.key, "worker", new_body=body[::-1]))
        await desk.fail(held.key)
        assert (await desk.take()).job.body == body[::-1]


async def test_a_body_of_a_mebibyte_comes_back_whole(desk: Desk) -> None:
    body = bytes(range(256)) * 4096
    held = await desk.put_and_take(body)

    assert held.job.body == body
    assert (await desk.look(held.key)).body == body


async def test_texts_come_back_as_they_were(desk: Desk) -> None:
    """Statuses, headers, errors, unique keys: NUL, odd unicode and quotes."""
    for text in TEXTS:
        await _comes_back(desk, text)


async def _comes_back(desk: Desk, text: str) -> None:
    held = await desk.put_and_take(status=text, headers={text: text, "other": ""}, unique=unique(text), attempts=3)
    assert held.job.headers == {text: text, "other": ""}
    await desk.fail(held.key, status=text, error=(text, text))
    await desk.take(source=text)
    await desk.checkpoint(JobCheckpoint(held.key, text, prepend_status=text))

    job = await desk.look(held.key)

    assert job.custom_status == text + desk.status_rule.after_ack(text, text)
    assert job.headers == {text: text, "other": ""}
    assert job.unique_key == text
    assert (job.error_type, job.error_text) == (text or None, text or None)
    assert [(one.error_type, one.error_text) for one in job.attempts or ()] == [(text or None, text or None)]


async def test_a_run_after_long_ago_is_due_at_once(desk: Desk) -> None:
    for run_after_ms in (I64_MIN, -1, 0, 1):
        key = await desk.put(run_after_ms=run_after_ms)

        assert (await desk.look(key)).run_after_ms == run_after_ms
        assert (await desk.take()).job.run_after_ms == run_after_ms


async def test_a_run_after_far_ahead_is_never_due(desk: Desk) -> None:
    """After 2038, after what a double can say exactly, and the last of all."""
    keys = {run_after_ms: await desk.put(run_after_ms=run_after_ms) for run_after_ms in (2**41, 2**53 + 1, I64_MAX)}

    assert await desk.claim() == []
    for run_after_ms, key in keys.items():
        assert (await desk.look(key)).run_after_ms == run_after_ms
    counts = await desk.counts()
    assert (counts.pending, counts.future) == (3, 3)
    found = [row.key for row in await desk.scan(JobState.PENDING, future=True)]
    assert found == list(keys.values())[::-1]


async def test_the_highest_id_works(desk: Desk) -> None:
    """Ids are 63 bits."""
    job = desk.job()._replace(id=I64_MAX)
    await desk.insert(job)

    held = await desk.take()
    assert held.job.id == I64_MAX
    await desk.succeed(held.key)
    assert (await desk.look(held.key)).state is JobState.SUCCEEDED


async def test_any_priority_of_a_byte_works(desk: Desk) -> None:
    for priority in (1, 3, 127):
        key = await desk.put(priority=priority)

        assert (await desk.take()).key == key
        assert (await desk.counts(priority=priority)).in_progress == 1


async def test_attempts_go_from_one_to_the_highest_i32(desk: Desk) -> None:
    for attempts, state in ((1, JobState.FAILED), (2**31 - 1, JobState.PENDING)):
        held = await desk.put_and_take(attempts=attempts)
        assert held.job.attempts_remaining == attempts

        await desk.fail(held.key)
        job = await desk.look(held.key)
        assert (job.attempts_remaining, job.state) == (attempts - 1, state)


async def test_times_far_ahead_fit_everywhere(desk: Desk) -> None:
    far_ms = I64_MAX - desk.now - 1_000_000
    held = await desk.put_and_take(expires_in_ms=far_ms, claim_timeout_ms=far_ms)

    assert held.job.claim_deadline_ms == desk.now + far_ms
    await desk.fail(held.key, delay_ms=far_ms)
    assert (await desk.look(held.key)).run_after_ms == desk.now + far_ms


async def test_keys_that_no_job_has_are_not_found(desk: Desk) -> None:
    await desk.put()

    for odd in (0, -1, I64_MIN, I64_MAX):
        assert await desk.find(JobKey(QUEUE, 1, odd)) is None
        assert await desk.shard.submit(DeleteJobs([JobKey(QUEUE, odd, 1), JobKey(QUEUE, 1, odd)])) == 0
        assert (await desk.cancel(JobKey(QUEUE, 1, odd))).state is None


async def test_names_that_no_queue_has_find_nothing(desk: Desk) -> None:
    """Only createQueue checks the form of a name; any other name may reach the store."""
    key = await desk.put()

    for name in ("", "no such", "'; --", "e" * 1000, "em%ils", "EMAILS", "emails\x00", "☂"):
        assert await desk.find(key._replace(queue=name)) is None
        assert await desk.shard.submit(DeleteJobs([key._replace(queue=name)])) == 0
        await desk.shard.submit(DeleteQueues([name]))
        assert await desk.find(key) is not None
    assert len(await desk.claim()) == 1


async def test_a_job_with_everything_set_comes_back_as_it_was(desk: Desk) -> None:
    headers = {"": "empty name", "traceparent": "00-1-2-01"}
    new = NewJob(
        id=desk.job().id,
        body=b"\x00",
        priority=3,
        run_after_ms=desk.now - 1,
        attempts_allowed=3,
        options=Options("s", headers, unique("k"), timeout_ms=1, expires_ms=desk.now + 1),
    )
    await desk.insert(new)

    job = await desk.look(JobKey(QUEUE, 3, new.id))
    assert (job.body, job.run_after_ms, job.attempts_allowed) == (b"\x00", desk.now - 1, 3)
    assert (job.custom_status, job.headers, job.unique_key) == ("s", headers, "k")
