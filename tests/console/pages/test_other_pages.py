"""Failed jobs of all queues, servers."""

from __future__ import annotations

import pytest

from pinlater.client import AsyncClient, ClusterStatus, FrontProcess, PartitionNumber
from pinlater.domain.clock import ManualClock
from pinlater.server.features.status.status import Status
from pinlater.server.main.core import Core
from pinlater.version import __version__
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


async def test_servers_and_shards_are_shown(visitor: PageVisitor) -> None:
    page = await visitor.page("/servers")
    assert __version__ in page.text
    assert "answers" in page.text


async def test_front_processes_are_shown_if_there_are_any(
    visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Front processes" not in (await visitor.page("/servers")).text
    plain = AsyncClient.cluster

    async def cluster(self: AsyncClient) -> ClusterStatus:
        return (await plain(self))._replace(front_processes=[FrontProcess(5, 1_234_567, 89, 67, 4_321)])

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    page = await visitor.page("/servers")
    for words in ("Front processes", "5", "1,234,567", "89", "67", "4,321"):
        assert words in page.text


async def test_the_trouble_of_a_server_with_its_coordinator_is_shown(
    visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = AsyncClient.cluster

    async def cluster(self: AsyncClient) -> ClusterStatus:
        return (await plain(self))._replace(coordinator_trouble="ZooKeeper does not answer (since 9)")

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    assert "ZooKeeper does not answer (since 9)" in (await visitor.page("/servers")).text


async def test_queues_with_several_partitions_are_shown_if_there_are_any(
    visitor: PageVisitor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "several partitions" not in (await visitor.page("/servers")).text
    plain = AsyncClient.cluster
    numbers = {"mail": PartitionNumber(4, True, clock.now_ms() - 300_000), "orders": PartitionNumber(2, False)}

    async def cluster(self: AsyncClient) -> ClusterStatus:
        return (await plain(self))._replace(partitions=numbers)

    monkeypatch.setattr(AsyncClient, "cluster", cluster)
    text = " ".join((await visitor.page("/servers")).text.split())
    assert "mail 4 servers 5 min ago orders 2 operator –" in text


async def test_an_error_says_that_nothing_was_changed_only_where_a_change_was_asked_for(visitor: PageVisitor) -> None:
    assert "Nothing was changed" not in (await visitor.page("/queues/none", 404)).text
    refused = await visitor.submit("/queues/none/pause", {})
    assert refused.status == 404
    assert "Nothing was changed" in refused.body.decode()
