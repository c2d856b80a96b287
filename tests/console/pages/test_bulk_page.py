"""The pages of bulk changes."""

from __future__ import annotations

import asyncio

from pinlater.client import AsyncClient
from pinlater.domain.clock import ManualClock
from tests.console.pages.conftest import failed_job
from tests.console.pages.visitor import PageVisitor
from tests.console.test_bulk import ended


def run_of(told: str) -> str:
    """The id in the message of a page."""
    return told.partition(": run ")[2].partition(".")[0]


async def test_a_person_looks_at_what_would_change_and_starts_it(visitor: PageVisitor, client: AsyncClient) -> None:
    await failed_job(client, "no disk")
    await failed_job(client, "boom")
    listed = await visitor.page("/queues/mail?tab=failed&error=no+disk")
    [link] = [link for link in listed.links if "/bulk?" in link]
    preview = await visitor.page(link)
    assert "All failed jobs with error no disk 1" in " ".join(preview.text.split())
    assert preview.inputs["error"] == "no disk"
    told = await visitor.does(
        "/queues/mail/bulk", action="delete", state="failed", error="no disk", jobs_per_second="100"
    )
    assert told.startswith("The servers delete jobs of mail in the background: run ")
    run_id = run_of(told)
    await ended(visitor, run_id)
    page = await visitor.page("/bulk")
    words = " ".join(page.text.split())
    assert "Delete failed jobs with error no disk" in words
    assert "at most 100 a second" in words
    assert "Done" in page.text
    assert "had ended already (done). It has changed 1 job." in await visitor.does("/queues/mail/bulk/stop", run=run_id)


async def test_a_person_undoes_a_delete(visitor: PageVisitor, client: AsyncClient) -> None:
    name = await failed_job(client, "no disk")
    told = await visitor.does("/queues/mail/bulk", action="delete", state="failed")
    run_id = run_of(told)
    await ended(visitor, run_id)
    page = await visitor.page("/bulk")
    assert "Undo" in page.text
    told = await visitor.does("/queues/mail/bulk/undo", run=run_id)
    assert told.startswith("The servers restore the deleted jobs of mail in the background: run ")
    await ended(visitor, run_of(told))
    page = await visitor.page("/bulk")
    assert f"Restore the jobs that run {run_id} has deleted" in " ".join(page.text.split())
    assert f"undone by {run_of(told)}" in page.text
    assert "Undo" not in page.text
    assert await client.lookup([name])


async def test_what_is_deleted_for_good_has_no_undo(visitor: PageVisitor, client: AsyncClient) -> None:
    await failed_job(client, "no disk")
    told = await visitor.does("/queues/mail/bulk", action="delete", state="failed", for_good="true")
    await ended(visitor, run_of(told))
    page = await visitor.page("/bulk")
    assert "for good" in page.text
    assert "Undo" not in page.text


async def test_the_page_says_which_shard_is_missing(visitor: PageVisitor, lost_shard: str) -> None:
    page = await visitor.page("/bulk")
    told = f"This list is incomplete: shard {lost_shard} is unreachable, and runs that it keeps may be missing."
    assert told in " ".join(page.text.split())


async def test_the_page_shows_how_far_a_run_is_and_when_it_ends(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    for _ in range(3):
        await failed_job(client, "no disk")
    told = await visitor.does("/queues/mail/bulk", action="delete", state="failed", jobs_per_second="0.1", expected="3")
    run_id = run_of(told)
    text = ""
    async with asyncio.timeout(30):
        while "Running 33 %, done in less than a minute" not in text:
            clock.advance(seconds=0.2)
            await asyncio.sleep(0.05)
            text = " ".join((await visitor.page("/bulk")).text.split())
    assert "1 of about 3" in text
    await visitor.does("/queues/mail/bulk/stop", run=run_id)
    text = " ".join((await visitor.page("/bulk")).text.split())
    assert "Stopped 33 %" in text
    assert "done in" not in text


async def test_the_form_passes_the_count_on(visitor: PageVisitor, client: AsyncClient) -> None:
    await failed_job(client, "no disk")
    preview = await visitor.page("/queues/mail/bulk?state=failed")
    assert preview.inputs["expected"] == "1"
