"""A queue's page: its jobs, its settings, its pause."""

from __future__ import annotations

from pinlater.client import AsyncClient, Job
from pinlater.domain.clock import ManualClock
from tests.console.pages.conftest import failed_job, stored
from tests.console.pages.visitor import PageReader, PageVisitor

PAGE = "/queues/mail"


async def test_jobs_are_shown_by_state(visitor: PageVisitor, client: AsyncClient, clock: ManualClock) -> None:
    due = await stored(client)
    later = (await client.enqueue("mail", [Job(b"y", run_after_ms=clock.now_ms() + 60_000)])).descriptors[0]
    await client.enqueue("mail", [b"z"])
    failed = await failed_job(client, "no route to host")
    for tab, name in {"scheduled": later, "failed": failed}.items():
        page = await visitor.page(f"{PAGE}?tab={tab}")
        assert f"/jobs/{name}" in page.links
        assert f"/jobs/{due}" not in page.links or name == due
    assert "ValueError: no route to host" in (await visitor.page(f"{PAGE}?tab=failed")).text
    assert "No succeeded jobs" in (await visitor.page(f"{PAGE}?tab=succeeded")).text


async def test_jobs_come_in_pages(visitor: PageVisitor, client: AsyncClient) -> None:
    names = set((await client.enqueue("mail", [b"x"] * 120)).descriptors)
    path, seen = PAGE, []
    while path:
        links = (await visitor.page(path)).links
        seen += [link.removeprefix("/jobs/") for link in links if link.startswith("/jobs/")]
        path = next((link for link in links if "after=" in link), "")
    assert len(seen) == 120
    assert set(seen) == names


async def test_jobs_are_filtered_by_priority_and_body(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.enqueue("mail", [Job(b"ada"), Job(b"grace", priority=2)])
    assert len(_jobs(await visitor.page(f"{PAGE}?priority=2&body="))) == 1
    assert len(_jobs(await visitor.page(f"{PAGE}?priority=&body=a.a"))) == 1
    assert "priority" in (await visitor.page(f"{PAGE}?priority=x", 400)).text
    assert "REGEX" in (await visitor.page(f"{PAGE}?body=(", 400)).text


def _jobs(page: PageReader) -> list[str]:
    return [link for link in page.links if link.startswith("/jobs/")]


async def test_a_missing_queue_is_a_page_that_says_so(visitor: PageVisitor) -> None:
    assert "QUEUE_NOT_FOUND" in (await visitor.page("/queues/none", 404)).text


async def test_a_queue_is_paused_and_resumed(visitor: PageVisitor, client: AsyncClient) -> None:
    assert "mail is paused" in await visitor.does(f"{PAGE}/pause")
    assert (await client.queue_config("mail")).paused
    assert f"{PAGE}/resume" in (await visitor.page(PAGE)).targets
    assert "mail is resumed" in await visitor.does(f"{PAGE}/resume")
    assert not (await client.queue_config("mail")).paused


async def test_settings_are_changed_and_only_those_that_were_edited(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.configure_queue("mail", (await client.queue_config("mail")).config._replace(max_backlog=7))
    told = await visitor.does(
        f"{PAGE}/settings",
        claim_timeout_ms="10m",
        max_jobs_per_second="2.5",
        **{"was-max_backlog": "", "max_backlog": ""},
    )
    assert told.startswith("Changed 2 of 7 settings.")
    config = (await client.queue_config("mail")).config
    assert (config.claim_timeout_ms, config.max_jobs_per_second, config.max_backlog) == (600_000, 2.5, 7)
    await visitor.does(f"{PAGE}/settings", **{"was-max_backlog": "7", "max_backlog": ""})
    assert (await client.queue_config("mail")).config.max_backlog is None
    assert await visitor.does(f"{PAGE}/settings") == "No setting was changed."


async def test_a_wrong_setting_is_refused_with_its_reason(visitor: PageVisitor, client: AsyncClient) -> None:
    before = (await client.queue_config("mail")).config
    for fields, text in (
        ({"claim_timeout_ms": "soon"}, "Claim timeout: 'soon' is not a duration"),
        ({"max_jobs_per_second": "-1"}, "max_jobs_per_second"),
        ({"color": "red"}, "There is no setting"),
    ):
        answer = await visitor.submit(f"{PAGE}/settings", fields)
        assert answer.status == 400
        assert text in answer.body.decode().replace("&#39;", "'")
    assert (await client.queue_config("mail")).config == before


async def test_at_most_the_announced_number_of_failed_jobs_is_retried(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    for _ in range(3):
        await failed_job(client)
    assert "Return 3 failed jobs" in (await visitor.page(PAGE)).text
    assert await visitor.does(f"{PAGE}/retry-failed", number=2) == "Retried 2 of 2 failed jobs of mail."
    assert await visitor.does(f"{PAGE}/retry-failed", number=3, back="/failed") == "Retried 1 of 3 failed jobs of mail."
    assert (await visitor.submit(f"{PAGE}/retry-failed")).status == 400
