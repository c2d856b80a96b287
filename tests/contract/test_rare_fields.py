"""Each field that few jobs have is kept for a job that has this one alone, also by an undo."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.server.storage.commands import DeleteWithCopies, RestoreJobs
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import CopiesOf, JobKey, RestoreOrder
from pinlater.wire.generated.structs import JobInfo
from tests.contract.desk import QUEUE, Desk, unique

RARE: dict[str, Any] = {
    "status": "a word",
    "headers": {"name": "value"},
    "unique": unique("key"),
    "timeout_ms": 5_000,
    "expires_ms": 2**50,
    "ordering_key": "customer 7",
}
RUN = CopiesOf("0123456789abcdef", 1_000)


def shown(job: JobInfo) -> tuple[object, ...]:
    return job.custom_status, job.headers or None, job.unique_key, job.expires_at_ms, job.ordering_key


async def put(desk: Desk, field: str | None) -> JobKey:
    new = desk.job()
    await desk.insert(new if field is None else new._replace(options=Options(**{field: RARE[field]})))
    return JobKey(QUEUE, new.priority, new.id)


async def undo_of_a_delete(desk: Desk, key: JobKey) -> None:
    before = await desk.look(key)
    deleted = await desk.shard.submit(DeleteWithCopies([key], before.state, RUN, desk.now))  # type: ignore[arg-type]
    assert (deleted.deleted, await desk.find(key)) == (1, None)
    await desk.shard.submit(RestoreJobs(RestoreOrder(QUEUE, RUN), desk.now))
    assert await desk.look(key) == before


def test_every_field_that_few_jobs_have_is_tried() -> None:
    assert set(RARE) == set(Options.__struct_fields__)


@pytest.mark.parametrize("deleted", [False, True], ids=["kept", "brought back"])
@pytest.mark.parametrize("field", RARE)
async def test_a_job_keeps_the_one_rare_field_that_it_has(desk: Desk, field: str, deleted: bool) -> None:
    plain, key = await put(desk, None), await put(desk, field)
    if deleted:
        await undo_of_a_delete(desk, key)
    is_shown = shown(await desk.look(key)) != shown(await desk.look(plain))
    of_plain, held = await desk.claim(2)
    assert (of_plain.key, held.key) == (plain, key)
    deadlines_ms = [each.job.claim_deadline_ms for each in (of_plain, held)]
    if field == "timeout_ms":
        assert deadlines_ms == [desk.now + 60_000, desk.now + 5_000]
    else:
        assert is_shown
        assert deadlines_ms == [desk.now + 60_000] * 2
