"""The page of the audit, and what the queue page says of a pause."""

from __future__ import annotations

from datetime import UTC, datetime

from pinlater.client import AsyncClient
from pinlater.domain.access import Role
from pinlater.domain.clock import ManualClock
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.main.core import Core
from pinlater.wire.generated.structs import AuditEntry
from tests.console.pages.guarded import GuardedConsole
from tests.console.pages.visitor import PageVisitor


async def test_changes_are_shown_with_their_callers(visitor: PageVisitor, client: AsyncClient) -> None:
    assert "No changes." in (await visitor.page("/audit")).text
    await client.pause_queue("mail")
    await client.retry_failed("mail", priority=1, limit=7)
    page = await visitor.page("/audit")
    for text in ("pauseQueue", "retryFailedJobs", "no token", "127.0.0.1", "limit 7"):
        assert text in page.text
    assert {"/queues/mail", "/audit?operation=pauseQueue"} <= set(page.links)


async def test_the_navigation_leads_to_the_audit_and_so_does_a_queue(visitor: PageVisitor) -> None:
    assert "/audit" in (await visitor.page("/")).links
    assert "/audit?queue=mail" in (await visitor.page("/queues/mail")).links


async def test_changes_are_filtered(visitor: PageVisitor, client: AsyncClient, clock: ManualClock) -> None:
    await client.create_queue("other")
    clock.advance(hours=48)
    await client.pause_queue("mail")
    assert "pauseQueue" not in (await visitor.page("/audit?queue=other")).text
    assert "createQueue" not in (await visitor.page("/audit?operation=pauseQueue")).text
    assert "No changes match." in (await visitor.page("/audit?who=bob")).text
    day = clock.now_ms() - 24 * 3_600_000
    for query, shown in ((f"since={_iso(day)}", "pauseQueue"), (f"until={_iso(day)}", "createQueue")):
        page = await visitor.page(f"/audit?{query}")
        assert [name in page.text for name in ("pauseQueue", "createQueue")].count(True) == 1
        assert shown in page.text
    for query in ("since=yesterday", "until=0001-01-01T00:00-23:59x", "other=1"):
        await visitor.page(f"/audit?{query}", 400)


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


async def test_changes_come_in_pages(visitor: PageVisitor, core: Core, clock: ManualClock) -> None:
    for number in range(120):
        clock.advance(ms=1)
        core.service.of(AuditTrail).buffer.add(
            AuditEntry("", 0, "ops", (), "cli", "::1", f"op{number}", "mail", "{}", None, "ok", "")
        )
    path, seen = "/audit?queue=mail", []
    while path:
        page = await visitor.page(path)
        seen += [link.rpartition("=")[2] for link in page.links if "operation=op" in link]
        path = next((link for link in page.links if "after=" in link), "")
    assert seen == [f"op{number}" for number in range(119, -1, -1)]


async def test_a_queue_page_says_who_paused_it_if_that_is_known(
    visitor: PageVisitor, client: AsyncClient, core: Core, clock: ManualClock
) -> None:
    await core.service.queues.set_paused("mail", True)
    assert "Paused by" not in (await visitor.page("/queues/mail")).text
    await client.pause_queue("mail")
    clock.advance(ms=5_000)
    assert "Paused by no token (console) from 127.0.0.1 5 s ago" in (await visitor.page("/queues/mail")).text
    await client.resume_queue("mail")
    assert "Paused by" not in (await visitor.page("/queues/mail")).text
    await core.service.queues.set_paused("mail", True)
    assert "Paused by" not in (await visitor.page("/queues/mail")).text


async def test_a_reader_is_told_which_role_is_missing_and_a_queue_page_does_not_ask(guarded: GuardedConsole) -> None:
    person = await guarded.logged_in("reader", Role.READ)
    assert "Changes of this queue" not in (await person.page("/queues/mail")).text
    assert len(guarded.control.refusals) == 0
    answer = await person.get("/audit", accept="text/html")
    assert (answer.status, b"operate" in answer.body) == (403, True)
