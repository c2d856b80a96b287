"""Groups of failures on the page of failed jobs."""

from __future__ import annotations

import re

import pytest

from pinlater.client import Ack, AsyncClient, Job, JobState
from pinlater.client.errors import ShardConnectionFailed, UnknownMethod
from pinlater.console.app import Console
from pinlater.console.endpoints.failures import FailureGroupItem
from pinlater.console.pages.failed import ROWS, group_row
from pinlater.domain.clock import ManualClock
from pinlater.domain.failures import OTHERS
from pinlater.domain.link_urls import LinkUrls
from tests.console.caller import Caller
from tests.console.pages.conftest import failed_job
from tests.console.pages.visitor import PageVisitor


async def name_of(client: AsyncClient, pattern: str) -> str:
    [name] = [group.name for group in (await client.failures("mail")).groups if group.pattern == pattern]
    return name


async def test_the_page_shows_groups_with_their_numbers(visitor: PageVisitor, client: AsyncClient) -> None:
    for number in range(3):
        await failed_job(client, f"no file {number}")
    await failed_job(client, "boom")
    name = await name_of(client, "no file …")
    page = await visitor.page("/failed")
    assert "ValueError: no file …" in page.text
    assert f"/queues/mail?tab=failed&group={name}" in page.links
    listed = await visitor.page(f"/queues/mail?tab=failed&group={name}")
    assert len({link for link in listed.links if link.startswith("/jobs/")}) == 3
    assert "3 failures in the last 24 hours, 3 in this one" in (await visitor.get("/failed")).body.decode()


async def test_the_jobs_of_a_group_are_retried(visitor: PageVisitor, client: AsyncClient) -> None:
    wanted = [await failed_job(client, f"no file {number}") for number in range(2)]
    other = await failed_job(client, "boom")
    name = await name_of(client, "no file …")
    told = await visitor.does("/queues/mail/retry-failed", number=1, group=name)
    assert told == "Retried 1 failed job of this group in mail; it is due now."
    found = await client.lookup([*wanted, other])
    assert sorted(job.state for job in found.values()) == [JobState.PENDING, JobState.FAILED, JobState.FAILED]


async def test_a_group_whose_failed_jobs_were_all_retried_has_nothing_to_retry_or_delete(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    """Unless the queue has more failed jobs than the page shows: then the page cannot tell."""
    await failed_job(client, "no file 1")
    await failed_job(client, "boom")
    name = await name_of(client, "no file …")
    change_all = f"/queues/mail/bulk?state=failed&group={name}"
    assert change_all in (await visitor.page("/failed")).links
    await visitor.does("/queues/mail/retry-failed", number=1, group=name)
    page = await visitor.page("/failed")
    assert "ValueError: no file …" in page.text
    assert change_all not in page.links
    assert page.text.count("No job failed now") == 1
    for _ in range(ROWS):
        await failed_job(client, "boom")
    assert change_all in (await visitor.page("/failed")).links


async def test_groups_and_jobs_link_to_the_line_of_code_that_raised_their_error(
    client: AsyncClient, clock: ManualClock
) -> None:
    """Also a group whose jobs are not among the newest; the list of failed jobs of a queue has the links, too."""
    console = Console(client, clock.now_ms, None, links=LinkUrls(source="https://git.example.org/{file}#L{line}"))
    caller = Caller(console.app)

    def links(page: str) -> list[str]:
        return re.findall('<a href="(https://[^"]+)" rel="noreferrer"', page)

    await failed_job(client, 'boom\n  File "/srv/old.py", line 7, in send\n')
    clock.advance(seconds=1)
    await failed_job(client, "no traceback")
    for _ in range(ROWS):
        clock.advance(seconds=1)
        await failed_job(client, 'no file\n  File "/srv/mailer.py", line 12, in send\n')
    newest, oldest = "https://git.example.org/srv/mailer.py#L12", "https://git.example.org/srv/old.py#L7"
    groups, _, jobs = (await caller.get("/failed")).body.decode().partition("Newest failed jobs")
    assert sorted(links(groups)) == [newest, oldest]
    assert links(jobs) == ROWS * [newest]
    assert links((await caller.get("/queues/mail?tab=failed")).body.decode()) == [*ROWS * [newest], oldest]


async def test_a_group_whose_job_can_not_be_read_has_no_link(
    client: AsyncClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lookup(_client: AsyncClient, *_names: object, **_options: object) -> None:
        raise ShardConnectionFailed("Shard 1 is unreachable")

    for number in range(ROWS + 1):
        await failed_job(client, "old" if not number else "new")
        clock.advance(seconds=1)
    monkeypatch.setattr(AsyncClient, "lookup", lookup)
    console = Console(client, clock.now_ms, None, links=LinkUrls(source="https://git.example.org/{file}#L{line}"))
    page = await Caller(console.app).get("/failed")
    assert page.status == 200
    assert "ValueError: old" in page.body.decode()


async def test_a_muted_group_comes_last_until_its_mute_is_ended(visitor: PageVisitor, client: AsyncClient) -> None:
    for error in ("no file", "no file", "boom"):
        await failed_job(client, error)
    often = await name_of(client, "no file")
    assert "is listed last" in await visitor.does("/queues/mail/mute", group=often, until_ms=2**45)
    assert [group.pattern for group in (await client.failures("mail")).groups] == ["boom", "no file"]
    assert "Muted; ends" in (await visitor.page("/failed")).text
    assert "is no longer muted" in await visitor.does("/queues/mail/mute", group=often, until_ms=0)
    assert [group.pattern for group in (await client.failures("mail")).groups] == ["no file", "boom"]
    assert "Muted" not in (await visitor.page("/failed")).text
    assert (await visitor.submit("/queues/mail/mute", {"group": "none", "until_ms": 0})).status == 400


async def test_before_servers_that_count_no_groups_the_page_shows_the_jobs(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failures(_client: AsyncClient, *_queues: str) -> None:
        raise UnknownMethod("getFailures")

    monkeypatch.setattr(AsyncClient, "failures", failures)
    assert f"/jobs/{await failed_job(client)}" in (await visitor.page("/failed")).links


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "OSError: no file …"),
        ({"error_type": ""}, "no file …"),
        ({"pattern": ""}, "OSError"),
        ({"error_type": "", "pattern": ""}, "Without an error"),
        ({"name": OTHERS, "error_type": "", "pattern": ""}, "Failures of other groups"),
    ],
)
def test_a_group_is_named_by_its_error(given: dict[str, str], text: str) -> None:
    fields = {"name": "0123456789abcdef", "error_type": "OSError", "pattern": "no file …", **given}
    hours = [0] * 22 + [1, 4]
    row = group_row(
        FailureGroupItem(
            queue="q",
            task="",
            failures=5,
            first_ms=1,
            last_ms=2,
            sample="q:s1:p1:1",
            hours=hours,
            muted_until_ms=0,
            **fields,
        )
    )
    assert (row.text, row.today, row.bars[-2:]) == (text, 5, [(22, 25.0), (23, 100.0)])


async def test_a_job_that_was_given_up_early_shows_the_attempts_that_it_had(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    jobs = (await client.enqueue("mail", [Job(b"1", attempts_allowed=4)] * 2)).descriptors
    [held] = (await client.dequeue("mail", 1)).jobs
    await client.ack("mail", [Ack(held.descriptor, succeeded=False, token=held.token, final=True)])
    await client.cancel("mail", [job for job in jobs if job != held.descriptor])
    shown = (await visitor.get("/failed")).body.decode()
    assert sorted(re.findall(r'data-label="Attempts">([^<]*)<', shown)) == ["0/4", "1/4"]
