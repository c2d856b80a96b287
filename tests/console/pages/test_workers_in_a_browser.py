"""The page of workers in Chromium: at two widths, in both colour schemes, and while it is open."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from pinlater.client import Ack, AsyncClient, Job, WorkerInfo, WorkingProcess
from pinlater.domain.job import TASK_HEADER
from pinlater.server.features.workers.workers import Workers
from tests.console.pages.browser import PROGRAM, BrowsedConsole, Scheme, browsed_console

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not Path(PROGRAM).exists() and "CI" not in os.environ, reason="needs Chromium (scripts/test-packages)"
    ),
]
PICTURES = Path(os.environ.get("PINLATER_PICTURES", "var/pictures"))
INFO = WorkerInfo("python", "1.0.0", "mailer-7.internal.example.org", 1431, 16, 3, 1_767_225_600_000)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsed() -> AsyncIterator[BrowsedConsole]:
    async with browsed_console() as browsed:
        await fill(browsed)
        yield browsed


async def fill(browsed: BrowsedConsole) -> None:
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_the_page_fits_and_has_no_defect_of_access(browsed: BrowsedConsole, width: int, scheme: Scheme) -> None:
    async with browsed.tab("/workers", width, scheme) as page:
        await expect(page.get_by_text("mailer-7.internal.example.org").first).to_be_visible()
        first = page.locator("tr[data-row]").first
        await expect(first).to_contain_text("resizer-7")
        await expect(first).to_contain_text("1 claim timed out in the last 10 minutes.")
        await expect(first).to_contain_text("this job may have killed it: images:")
        await expect(page.locator("#suspects")).to_contain_text("resize")
        result = await Axe().run(page)
        found = [
            one["id"] for one in result.response["violations"] if one["impact"] in ("serious", "critical", "moderate")
        ]
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await browsed.save_picture(page, PICTURES, width, scheme)
    assert found == []


async def test_a_worker_that_comes_appears_while_the_page_is_open(browsed: BrowsedConsole) -> None:
    async with browsed.tab("/workers") as page:
        address = str(browsed.client.servers[0])
        async with AsyncClient(address, source="newcomer", token="", wait_for_servers=False) as one:
            await one.dequeue("mail", 1, process=WorkingProcess(99, INFO._replace(host="new-host")))
        await expect(page.get_by_text("newcomer")).to_be_visible()
        await expect(page.get_by_text("new-host")).to_be_visible()
