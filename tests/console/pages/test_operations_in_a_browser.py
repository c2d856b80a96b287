"""The pages of bulk changes, servers and workers in Chromium, with much to show."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from pinlater.client import (
    Ack,
    AsyncClient,
    BulkAction,
    BulkOrder,
    BulkRun,
    BulkRunList,
    BulkState,
    ClusterStatus,
    Job,
    JobFilter,
    JobState,
    WorkerInfo,
    WorkingProcess,
)
from pinlater.domain.clock import SystemClock
from pinlater.domain.job import TASK_HEADER
from pinlater.server.features.workers.workers import Workers
from tests.console.pages.browser import (
    IN_CHROMIUM,
    BrowsedConsole,
    Scheme,
    at_two_widths_in_both_schemes,
    defects,
)
from tests.console.pages.cluster_sample import cluster_sample

pytestmark = IN_CHROMIUM
INFO = WorkerInfo("python", "1.0.0", "mailer-7.internal.example.org", 1431, 16, 3, 1_767_225_600_000)
_LONG = "a_queue_with_a_very_long_name_that_needs_two_lines_on_a_small_screen"


def runs_of_every_kind(now_ms: int) -> list[BulkRun]:
    """Under way with and without an end, waiting, stopped, failed, done, and an undo."""
    delete = BulkOrder("mail", BulkAction.DELETE, JobFilter(JobState.FAILED))
    chosen = JobFilter(
        JobState.FAILED,
        tasks=frozenset({"send_mail"}),
        error_text="Connection refused",
        min_attempts=3,
        skip_cancelled=True,
    )
    retry = BulkOrder(_LONG, BulkAction.RETRY, chosen, jobs_per_second=100.0)
    undo = delete._replace(action=BulkAction.RESTORE, undoes="4444444444444444")
    early = now_ms - 180_000
    return [
        BulkRun("1111111111111111", delete, "console (token ops)", early, looked=420_000, changed=420_000)._replace(
            to_look_at=1_000_000, expected=1_000_000, percent=42, left_ms=250_000
        ),
        BulkRun("2222222222222222", retry, "console (token ops)", early, looked=1_200, changed=77, percent=7)._replace(
            to_look_at=16_000, expected=900, detail="waits: Shard 2 is unreachable"
        ),
        BulkRun("3333333333333333", undo, "cli", early, looked=10, changed=10),
        BulkRun(
            "4444444444444444", delete, "cli", early, BulkState.DONE, 9_000, 9_000, early, early, percent=100
        )._replace(undo_until_ms=now_ms + 80_000_000),
        BulkRun("5555555555555555", retry, "cli", early, BulkState.STOPPED, 3_000, 500, early, early, percent=19),
        BulkRun(
            "6666666666666666", delete, "cli", early, BulkState.FAILED, 3_000, 500, early, early, percent=60
        )._replace(
            detail="The copies of deleted jobs take 256 MiB on shard 1, of 256 MiB (jobs.max_undo_bytes): no further job was deleted."
        ),
    ]


async def start_workers(browsed: BrowsedConsole) -> None:
    """A worker whose job may have killed it, two processes that share a source, an old client with a late answer, and a long name."""
    address = str(browsed.client.servers[0])
    workers: list[tuple[str, WorkingProcess | None, int]] = [
        ("mailer", WorkingProcess(1, INFO), 3),
        ("mailer", WorkingProcess(2, INFO._replace(pid=1432, running=0)), 0),
        ("nightly-import", None, 0),
        ("thumbnails-of-large-pictures-in-zone-b-1431-42-" + "x" * 60, WorkingProcess(3, INFO), 1),
        ("images-1", WorkingProcess(4, INFO._replace(version="0.9.2", host="images-1")), 0),
    ]
    for source, process, jobs in workers:
        async with AsyncClient(address, source=source, token="", wait_for_servers=False) as one:
            found = await one.dequeue("images" if source == "images-1" else "mail", jobs or 1, process=process)
            if source == "nightly-import":
                await one.ack("mail", [Ack(found.jobs[0].descriptor, succeeded=True, token="of another claim")])
    await kill(browsed, address)


async def kill(browsed: BrowsedConsole, address: str) -> None:
    """The claim of a worker times out. It was heard last one and a half minutes ago, as its entry says afterwards."""
    assert browsed.core is not None
    await browsed.client.enqueue("images", [Job(b"x", claim_timeout_ms=1_000, headers={TASK_HEADER: "resize"})])
    async with AsyncClient(address, source="resizer-7", token="", wait_for_servers=False) as one:
        await one.dequeue("images", 1, process=WorkingProcess(5, INFO._replace(host="resizer-7")))
    registry = browsed.core.service.of(Workers).registry
    async with asyncio.timeout(30):
        while ("resizer-7", 0) not in registry._entries:
            await browsed.core.sweeps.time_out_claims()
            await asyncio.sleep(0.05)
    entry = registry._entries["resizer-7", 5]
    entry.heard_s, entry.claim_ms = (entry.heard_s or 0) - 90, 600_000


@at_two_widths_in_both_schemes
async def test_much_is_shown_without_a_defect_of_access_and_fits_the_screen(
    browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch, width: int, scheme: Scheme
) -> None:
    async def list_bulk_runs(_client: AsyncClient, *_queues: str) -> BulkRunList:
        return BulkRunList(runs_of_every_kind(SystemClock().now_ms()), True, ["2"])

    async def cluster(_: AsyncClient) -> ClusterStatus:
        return cluster_sample(SystemClock().now_ms())

    monkeypatch.setattr(AsyncClient, "list_bulk_runs", list_bulk_runs)
    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    await start_workers(browsed)
    found = []
    async with browsed.tab("/", width, scheme) as page:
        for path, text in (("/bulk", "done in about 5 min"), ("/servers", "Access denied"), ("/workers", "resizer-7")):
            await page.goto(browsed.url + path)
            await expect(page.locator("main")).to_contain_text(text)
            found += await defects(page)
            await browsed.save_picture(page, width, scheme)
    assert found == []


async def test_the_page_follows_a_run_to_its_end(browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    running, *_ = runs_of_every_kind(SystemClock().now_ms())
    shown = [running]

    async def list_bulk_runs(_client: AsyncClient, *_queues: str) -> BulkRunList:
        return BulkRunList(list(shown))

    monkeypatch.setattr(AsyncClient, "list_bulk_runs", list_bulk_runs)
    async with browsed.tab("/bulk") as page:
        bar = page.get_by_role("progressbar", name="Progress of run 1111111111111111")
        await expect(bar).to_have_attribute("aria-valuenow", "42")
        await expect(bar).to_have_attribute("aria-valuetext", "42 %, done in about 5 min")
        shown[0] = running._replace(percent=43)
        await expect(bar).to_have_attribute("aria-valuenow", "43")
        shown[0] = running._replace(state=BulkState.DONE, percent=100, left_ms=None)
        await expect(bar).to_have_count(0)


async def test_the_page_follows_a_shard_that_becomes_unreachable(
    browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cluster_sample(SystemClock().now_ms())
    shards = [found.shards[0]]

    async def cluster(_: AsyncClient) -> ClusterStatus:
        return found._replace(shards=list(shards))

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    async with browsed.tab("/servers") as page:
        states = page.locator("#servers td[data-label='State'] .state")
        await expect(states.first).to_have_text("reachable")
        shards[0] = found.shards[1]
        await expect(states.first).to_have_text("unreachable")
        await expect(page.locator("#servers")).to_contain_text("Access denied for user")


async def test_a_worker_that_comes_appears_while_the_page_is_open(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/workers") as page:
        address = str(browsed.client.servers[0])
        async with AsyncClient(address, source="newcomer", token="", wait_for_servers=False) as one:
            await one.dequeue("mail", 1, process=WorkingProcess(99, INFO._replace(host="new-host")))
        await expect(page.get_by_text("newcomer")).to_be_visible()
        await expect(page.get_by_text("new-host")).to_be_visible()
