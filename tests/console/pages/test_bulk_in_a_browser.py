"""The page of bulk changes in Chromium, with runs of every kind: at two widths, in both colour schemes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from pinlater.client import AsyncClient, BulkAction, BulkOrder, BulkRun, BulkRunList, BulkState, JobFilter, JobState
from pinlater.domain.clock import SystemClock
from tests.console.pages.browser import PROGRAM, BrowsedConsole, Scheme, browsed_console

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not Path(PROGRAM).exists() and "CI" not in os.environ, reason="needs Chromium (scripts/test-packages)"
    ),
]
PICTURES = Path(os.environ.get("PINLATER_PICTURES", "var/pictures")) / "bulk"
_LONG = "a_queue_with_a_very_long_name_that_needs_two_lines_on_a_small_screen"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsed() -> AsyncIterator[BrowsedConsole]:
    async with browsed_console() as browsed:
        yield browsed


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_runs_are_shown_without_a_serious_defect_of_access_and_fit_the_screen(
    browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch, width: int, scheme: Scheme
) -> None:
    async def list_bulk_runs(_client: AsyncClient, *_queues: str) -> BulkRunList:
        return BulkRunList(runs_of_every_kind(SystemClock().now_ms()), True, ["2"])

    monkeypatch.setattr(AsyncClient, "list_bulk_runs", list_bulk_runs)
    async with browsed.tab("/bulk", width, scheme) as page:
        await expect(page.get_by_role("progressbar", name="Progress of run 1111111111111111")).to_have_attribute(
            "aria-valuetext", "42 %, done in about 5 min"
        )
        assert await page.get_by_role("progressbar").count() == 4
        result = await Axe().run(page)
        found = [
            (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0].get("failureSummary"))
            for one in result.response["violations"]
            if one["impact"] in ("serious", "critical", "moderate")
        ]
        assert found == []
        await browsed.save_picture(page, PICTURES, width, scheme)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_page_follows_a_run_to_its_end(browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch) -> None:
    running, *_ = runs_of_every_kind(SystemClock().now_ms())
    shown = [running]

    async def list_bulk_runs(_client: AsyncClient, *_queues: str) -> BulkRunList:
        return BulkRunList(list(shown))

    monkeypatch.setattr(AsyncClient, "list_bulk_runs", list_bulk_runs)
    async with browsed.tab("/bulk") as page:
        bar = page.get_by_role("progressbar")
        await expect(bar).to_have_attribute("aria-valuenow", "42")
        shown[0] = running._replace(percent=43)
        await expect(bar).to_have_attribute("aria-valuenow", "43")
        shown[0] = running._replace(state=BulkState.DONE, percent=100, left_ms=None)
        await expect(bar).to_have_count(0)
