"""Many browsers that show the overview ask the servers as often as one."""

from __future__ import annotations

import asyncio

import pytest

from pinlater.client import AsyncClient
from pinlater.console.pages.shared_answers import SHARED_MS, SharedAnswers
from pinlater.domain.access import Role
from pinlater.domain.clock import ManualClock
from tests.console.pages.guarded import GuardedConsole
from tests.console.pages.visitor import PageVisitor


class Server:
    """Counts calls, which end when `answers` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.answers = asyncio.Event()

    async def call(self) -> int:
        self.calls += 1
        number = self.calls
        await self.answers.wait()
        return number


async def test_a_browser_that_disconnects_takes_the_answer_from_no_other() -> None:
    clock, server = ManualClock(), Server()
    shared = SharedAnswers(clock.now_ms)
    first, second = (asyncio.ensure_future(shared.get("key", server.call)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    server.answers.set()
    assert await second == 1


async def test_a_failure_goes_to_those_that_wait_and_is_not_kept() -> None:
    shared = SharedAnswers(ManualClock().now_ms)

    async def fail() -> int:
        await asyncio.sleep(0)
        raise ConnectionError

    found = await asyncio.gather(*(shared.get("key", fail) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in found] == [ConnectionError] * 2
    server = Server()
    server.answers.set()
    assert await shared.get("key", server.call) == 1


async def test_what_was_asked_before_a_change_is_not_shown_after_it() -> None:
    clock, server = ManualClock(), Server()
    shared = SharedAnswers(clock.now_ms)
    before = asyncio.ensure_future(shared.get("key", server.call))
    await asyncio.sleep(0)
    shared.forget()
    after = asyncio.ensure_future(shared.get("key", server.call))
    await asyncio.sleep(0)
    server.answers.set()
    assert (await before, await after) == (1, 2)
    assert await shared.get("key", server.call) == 2


async def test_twenty_browsers_ask_for_the_counts_once_a_second(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    queue_stats = AsyncClient.queue_stats

    async def counted(client: AsyncClient, *queues: str) -> object:
        nonlocal asked
        asked += 1
        stats = await queue_stats(client, *queues)
        clock.advance(ms=SHARED_MS - 1)
        return stats

    monkeypatch.setattr(AsyncClient, "queue_stats", counted)
    await asyncio.gather(*(visitor.page("/") for _ in range(20)))
    assert asked == 1
    await visitor.page("/")
    assert asked == 1
    clock.advance(ms=1)  # a second after the beginning of the call
    await visitor.page("/")
    assert asked == 2


async def test_the_overview_shows_what_a_page_has_just_changed(visitor: PageVisitor) -> None:
    assert "Paused" not in (await visitor.page("/queues/mail")).text
    await visitor.page("/")
    await visitor.does("/queues/mail/pause")
    assert "Paused" in (await visitor.page("/")).text


async def test_tokens_share_nothing(guarded: GuardedConsole, client: AsyncClient) -> None:
    await client.create_queue("orders")
    mail = await guarded.logged_in("mail", Role.READ, queues=["mail"])
    orders = await guarded.logged_in("orders", Role.READ, queues=["orders"])
    pages = await asyncio.gather(mail.page("/"), orders.page("/"))
    assert ["/queues/mail" in page.links for page in pages] == [True, False]
    assert ["/queues/orders" in page.links for page in pages] == [False, True]
