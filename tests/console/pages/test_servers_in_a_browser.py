"""The page of servers and shards in Chromium, with much to show: at two widths, in both colour schemes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from pinlater.client import AsyncClient, ClusterStatus
from pinlater.domain.clock import SystemClock
from tests.console.pages.browser import PROGRAM, BrowsedConsole, Scheme, browsed_console
from tests.console.pages.cluster_sample import cluster_sample

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not Path(PROGRAM).exists() and "CI" not in os.environ, reason="needs Chromium (scripts/test-packages)"
    ),
]
PICTURES = Path(os.environ.get("PINLATER_PICTURES", "var/pictures")) / "cluster"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsed() -> AsyncIterator[BrowsedConsole]:
    async with browsed_console() as browsed:
        yield browsed


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_a_cluster_is_shown_without_a_serious_defect_of_access_and_fits_the_screen(
    browsed: BrowsedConsole, monkeypatch: pytest.MonkeyPatch, width: int, scheme: Scheme
) -> None:
    async def cluster(_: AsyncClient) -> ClusterStatus:
        return cluster_sample(SystemClock().now_ms())

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    async with browsed.tab("/servers", width, scheme) as page:
        result = await Axe().run(page)
        found = [
            (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0].get("failureSummary"))
            for one in result.response["violations"]
            if one["impact"] in ("serious", "critical", "moderate")
        ]
        assert found == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await browsed.save_picture(page, PICTURES, width, scheme)


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
