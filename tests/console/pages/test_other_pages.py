"""Failed jobs of all queues, servers."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient
from pinlater.server.features.status.status import Status
from pinlater.server.main.core import Core
from tests.console.pages.conftest import failed_job
from tests.console.pages.visitor import PageVisitor


async def test_failed_jobs_are_shown_with_their_errors_and_retried_from_there(
    visitor: PageVisitor, client: AsyncClient
) -> None:
    assert "No failed jobs" in (await visitor.page("/failed")).text
    name = await failed_job(client, "no route to host\nTraceback")
    page = await visitor.page("/failed")
    assert "1 in 1 queue" in page.text
    assert "ValueError: no route to host" in page.text
    assert "Return 1 failed jobs of mail" in page.text
    of_queue = {f"/queues/mail/{action}" for action in ("retry-failed", "bulk", "mute")}
    assert {f"/jobs/{name}/run", *of_queue} == set(page.targets)
    answer = await visitor.submit(f"/jobs/{name}/run", {"back": "/failed?filter=ma"})
    assert answer.headers["location"].startswith("/failed?filter=ma&done=")


@pytest.mark.parametrize(("access", "warned"), [("insecure", True), ("loopback", False), ("", False)])
async def test_each_page_says_that_the_network_reaches_a_server_without_access_control(
    visitor: PageVisitor, core: Core, access: str, warned: bool
) -> None:
    core.service.of(Status).access = access
    for path in ("/", "/failed", "/workers", "/servers", "/queues/mail"):
        assert ("The server has no access control" in (await visitor.page(path)).text) is warned


async def test_an_error_says_that_nothing_was_changed_only_where_a_change_was_asked_for(visitor: PageVisitor) -> None:
    assert "Nothing was changed" not in (await visitor.page("/queues/none", 404)).text
    refused = await visitor.submit("/queues/none/pause", {})
    assert refused.status == 404
    assert "Nothing was changed" in refused.body.decode()
