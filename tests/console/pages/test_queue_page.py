"""A queue's page: its jobs, its settings, its pause."""

from __future__ import annotations

import pytest

from pinlater.client import Ack, AsyncClient, Job, PartitionNumber, QueueStats
from pinlater.console.pages.page import job_path
from pinlater.domain.clock import ManualClock
from pinlater.domain.errors import UnknownMethod
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.main.core import Core
from tests.console.conftest import COMPARED_MAX
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


async def test_jobs_that_wait_behind_others_of_their_ordering_keys_are_told_apart(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    await client.enqueue("mail", [Job(b"x", ordering_key="k")] * 3)
    assert "Scheduled 2 (2 behind others of their keys)" in (await visitor.page(PAGE)).text


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
    assert len(_jobs(await visitor.page(f"{PAGE}?priority=2&regex="))) == 1
    assert len(_jobs(await visitor.page(f"{PAGE}?priority=&regex=a.a"))) == 1
    assert "priority" in (await visitor.page(f"{PAGE}?priority=x", 400)).text
    assert "REGEX" in (await visitor.page(f"{PAGE}?regex=(", 400)).text


async def test_jobs_are_filtered_by_task_and_header_in_all_pages_and_tabs(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    acme = {"tenant": "a&b"}
    for _ in range(60):
        await client.enqueue(
            "mail", [Job(b"x", headers={"pinlater-task": "send <it>", **acme}), Job(b"x", headers=acme)]
        )
    chosen = "task=send+%3Cit%3E"
    page = await visitor.page(f"{PAGE}?{chosen}&header=tenant%3Da%26b&priority=1")
    assert len(_jobs(page)) == 50
    kept = f"priority=1&{chosen}&header=tenant%3Da%26b"
    assert f"{PAGE}?tab=failed&{kept}" in page.links
    [following] = [link for link in page.links if "after=" in link]
    assert following.startswith(f"{PAGE}?tab=due&{kept}&after=")
    last = await visitor.page(following)
    assert len(_jobs(last)) == 10
    assert f"{PAGE}?tab=due&{kept}" in last.links
    assert page.inputs | {"tab": "due", "priority": "1", "task": "send <it>", "header": "tenant=a&b"} == page.inputs
    assert f"{PAGE}?tab=due&{chosen}" in (await visitor.page(PAGE)).links
    assert "No due jobs match." in (await visitor.page(f"{PAGE}?task=none")).text
    assert "NAME=VALUE" in (await visitor.page(f"{PAGE}?header=tenant", 400)).text


async def test_jobs_are_filtered_by_a_text_or_a_regular_expression_in_their_body(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    text, other = [job_path(await stored(client, body)) for body in (b"Order A.C", b"order abc")]
    page = await visitor.page(f"{PAGE}?text=a.c")
    assert _jobs(page) == [text]
    assert page.inputs | {"text": "a.c", "regex": ""} == page.inputs
    assert sorted(_jobs(await visitor.page(f"{PAGE}?regex=[aA].[cC]"))) == sorted([text, other])
    assert "exclude each other" in (await visitor.page(f"{PAGE}?text=a&regex=b", 400)).text
    [change] = [link for link in page.links if "/bulk?" in link]
    assert "All pending jobs with text a.c 1" in " ".join((await visitor.page(change)).text.split())
    await visitor.does("/queues/mail/bulk", action="cancel", state="pending", text="a.c")
    assert "Cancel pending jobs with text a.c" in " ".join((await visitor.page("/bulk")).text.split())


async def test_a_failed_job_is_listed_with_the_lines_below_the_first_one_of_its_error(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    await failed_job(client, '1 validation error\nmail\n  Field required\n  File "mails.py", line 3, in send')
    page = await visitor.page(f"{PAGE}?tab=failed")
    assert "1 validation error; mail; Field required" in page.text
    assert "mails.py" not in page.text


async def test_jobs_are_filtered_by_error_attempts_and_age(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    full, other = [job_path(await failed_job(client, text)) for text in ("the disk is full", "boom")]
    failed = f"{PAGE}?tab=failed"
    assert _jobs(await visitor.page(f"{failed}&error=DISK")) == [full]
    assert sorted(_jobs(await visitor.page(f"{failed}&min_attempts=1"))) == sorted([full, other])
    assert _jobs(await visitor.page(f"{failed}&min_attempts=2")) == []
    clock.advance(seconds=90)
    recent = job_path(await stored(client))
    assert _jobs(await visitor.page(f"{failed}&older_than=1m&error=disk")) == [full]
    assert _jobs(await visitor.page(f"{failed}&newer_than=1m")) == []
    page = await visitor.page(f"{PAGE}?newer_than=1m&min_attempts=0")
    assert _jobs(page) == [recent]
    assert page.inputs | {"newer_than": "1m", "error": "", "min_attempts": ""} == page.inputs
    assert f"{PAGE}?tab=failed&newer_than=1m" in page.links
    refused = await visitor.page(f"{PAGE}?older_than=soon", 400)
    assert "&#39;soon&#39; is not a duration" in refused.text or "'soon' is not a duration" in refused.text


async def test_a_list_that_is_cut_short_says_how_to_go_on(visitor: PageVisitor, client: AsyncClient) -> None:
    rare = (await client.enqueue("mail", [Job(b"x", headers={"pinlater-task": "rare"})])).descriptors[0]
    await client.enqueue("mail", [b"x"] * COMPARED_MAX)
    page = await visitor.page(f"{PAGE}?task=rare")
    assert "No due jobs match so far." in page.text
    [following] = [link for link in page.links if "after=" in link]
    assert f"/jobs/{rare}" in (await visitor.page(following)).links


def _jobs(page: PageReader) -> list[str]:
    return [link for link in page.links if link.startswith("/jobs/")]


async def minutes(core: Core, clock: ManualClock, count: int) -> None:
    """Time passes, and the server keeps the history."""
    for _ in range(count):
        clock.advance(seconds=60)
        await core.sweeps.advance_due()
        await core.rates.sample()
        await core.service.of(HistoryKeeper).keep()


async def test_charts_show_the_history_of_the_queue_with_its_marks(
    visitor: PageVisitor, client: AsyncClient, core: Core, clock: ManualClock
) -> None:
    for _ in range(3):
        await stored(client)
    await client.add_mark("<b>v2</b>", at_ms=clock.now_ms())
    await minutes(core, clock, 5)
    page = (await visitor.get(PAGE)).body.decode()
    assert 'aria-label="Jobs: now Due 3, Running 0, Scheduled 0; at most 3."' in page
    assert page.count('class="chart"') == 5
    assert page.count("&lt;b&gt;v2&lt;/b&gt;") == 6
    for span in ("15m", "6h", "1d", "7d", "30d"):
        assert f"{PAGE}?tab=due&range={span}" in (await visitor.page(PAGE)).links
        assert "Due 3" in (await visitor.get(f"{PAGE}?range={span}")).body.decode()
    assert "range" in (await visitor.page(f"{PAGE}?range=2h", 400)).text


async def test_a_table_has_the_figures_of_the_charts(
    visitor: PageVisitor, client: AsyncClient, core: Core, clock: ManualClock
) -> None:
    for _ in range(3):
        await stored(client)
    assert "Nothing happened" in (await visitor.page(f"{PAGE}?table=true")).text
    await minutes(core, clock, 2)
    page = await visitor.get(f"{PAGE}?table=true")
    text = page.body.decode()
    assert text.count('<tr><th scope="row"><time') == 2
    assert "data-polls" not in text
    assert 'class="chart"' not in text


async def test_the_forecast_follows_the_depths_of_the_last_minutes(
    visitor: PageVisitor, client: AsyncClient, core: Core, clock: ManualClock
) -> None:
    await client.enqueue("mail", [b"x"] * 100)
    for _ in range(6):
        jobs = (await client.dequeue("mail", 10)).jobs
        await client.ack("mail", [Ack(job.descriptor, succeeded=True, token=job.token) for job in jobs])
        await minutes(core, clock, 1)
    for page in (PAGE, f"{PAGE}?range=7d", "/"):
        assert "4 min" in (await visitor.page(page)).text
    assert "Due over the last 30 minutes: at most 90, now 40" in (await visitor.get("/")).body.decode()


async def test_a_server_without_history_has_pages_without_charts(
    visitor: PageVisitor, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the middle of an upgrade."""

    async def unknown(*_: object, **__: object) -> None:
        raise UnknownMethod("getQueueHistory")

    monkeypatch.setattr(AsyncClient, "queue_history", unknown)
    await stored(client)
    assert 'class="chart"' not in (await visitor.get(PAGE)).body.decode()
    assert "/queues/mail" in (await visitor.page("/")).links


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
    assert told.startswith("Changed 2 of 12 settings.")
    config = (await client.queue_config("mail")).config
    assert (config.claim_timeout_ms, config.max_jobs_per_second, config.max_backlog) == (600_000, 2.5, 7)
    await visitor.does(f"{PAGE}/settings", **{"was-max_backlog": "7", "max_backlog": ""})
    assert (await client.queue_config("mail")).config.max_backlog is None
    assert await visitor.does(f"{PAGE}/settings") == "No setting was changed."
    await visitor.does(f"{PAGE}/settings", partitions="1")
    assert (await client.queue_config("mail")).config.partitions == 1
    await visitor.does(f"{PAGE}/settings", **{"was-partitions": "1", "partitions": "auto"})
    assert (await client.queue_config("mail")).config.partitions is None


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (PartitionNumber(2, True, 0), "Stored on shards a, b: 2 partitions, chosen by the servers"),
        (PartitionNumber(2, False, 0), "Stored on shards a, b: 2 partitions, set by an operator."),
        (None, "Stored on shards a, b."),
    ],
)
async def test_the_shards_of_a_queue_and_who_chose_their_number_are_shown(
    visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch, number: PartitionNumber | None, told: str
) -> None:
    plain = AsyncClient.queue_stats

    async def queue_stats(self: AsyncClient, *names: str) -> list[QueueStats]:
        found = await plain(self, *names)
        return [each._replace(partitions=("a", "b"), partition_number=number) for each in found]

    monkeypatch.setattr(AsyncClient, "queue_stats", queue_stats)
    assert told in " ".join((await visitor.page(PAGE)).text.split())


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
    assert (
        await visitor.does(f"{PAGE}/retry-failed", number=2) == "Retried 2 of 2 failed jobs of mail; they are due now."
    )
    assert (
        await visitor.does(f"{PAGE}/retry-failed", number=3, back="/failed")
        == "Retried 1 of 3 failed jobs of mail; it is due now."
    )
    assert (await visitor.submit(f"{PAGE}/retry-failed")).status == 400
