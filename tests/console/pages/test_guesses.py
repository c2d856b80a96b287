"""Callers of `/v1` whose tokens are wrong, beside people with good ones: for the server all of them have the address of the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.browser_guard import LOOPBACK_NAMES
from pinlater.domain.access import Role
from pinlater.domain.clock import ManualClock
from pinlater.domain.refusals import DELAY_S_MAX, Refusal, Refusals
from pinlater.server.access.control import AccessControl
from pinlater.server.main.app import thrift_server
from pinlater.server.main.core import Core
from tests.console.caller import Answer, Caller
from tests.console.pages.guarded import GuardedConsole, Person, Tokens

GUESSES = 50
LONG_S = 3_600.0
HTML = "text/html"


class NotedRefusals(Refusals):
    """`delays_s`: as they would be, in order. The server waits `waits_s` instead if it would wait at all."""

    def __init__(self, clock: ManualClock, waits_s: float) -> None:
        super().__init__(clock.monotonic)
        self.delays_s: list[float] = []
        self._waits_s = waits_s

    def one(self, address: str) -> Refusal:
        refusal = super().one(address)
        self.delays_s.append(refusal.delay_s)
        return Refusal(self._waits_s if refusal.delay_s else 0.0, refusal.log)


@pytest_asyncio.fixture
async def console_of_long_calls(core: Core, clock: ManualClock) -> AsyncIterator[GuardedConsole]:
    """A console whose calls may take longer than any test."""
    control = AccessControl((), (), clock.now_ms, clock.monotonic)
    server = thrift_server(core, access=control)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with AsyncClient(address, token="", wait_for_servers=False, timeout_ms=int(LONG_S * 1000)) as client:
        console = Console(client, clock.now_ms, LOOPBACK_NAMES)
        yield GuardedConsole(console, Tokens(control), control, client, clock.now_ms)
    await server.drain(0)


async def guess(guarded: GuardedConsole) -> Answer:
    return await Caller(guarded.console.app).get("/v1/queues", authorization="Bearer pinlater_a_guess")


async def refused_to(person: Person) -> int:
    """The status of an action that the page offers only to others."""
    return (await person.presses("/queues/mail/pause")).status


async def test_guesses_whose_refusals_wait_hold_up_no_page_no_log_in_and_no_call(
    console_of_long_calls: GuardedConsole,
) -> None:
    """Calls on one connection are answered in order, so a guess must be on no connection of others."""
    console_of_long_calls.control.refusals = refusals = NotedRefusals(ManualClock(), LONG_S)
    guesses = [asyncio.create_task(guess(console_of_long_calls)) for _ in range(GUESSES)]
    async with asyncio.timeout(60):
        while len(refusals.delays_s) < GUESSES:
            await asyncio.sleep(0.01)
        for number in range(5):
            ada = await console_of_long_calls.logged_in(f"ada-{number}", Role.OPERATE)
            assert (await ada.get("/", accept=HTML)).status == 200
            assert (await ada.presses("/queues/mail/pause")).status == 303
        token = console_of_long_calls.tokens.make("program", Role.READ)
        await Caller(console_of_long_calls.console.app).ok("GET", "/v1/queues", authorization=f"Bearer {token}")
        assert (await console_of_long_calls.person().get("/", accept=HTML)).status == 401
    waiting = [one for one in guesses if not one.done()]
    assert len(waiting) >= GUESSES - 3  # the first refusals are answered at once
    for one in waiting:
        one.cancel()
    await asyncio.gather(*guesses, return_exceptions=True)


async def test_what_a_good_token_may_not_do_is_refused_as_fast_as_without_guesses(
    guarded: GuardedConsole, clock: ManualClock
) -> None:
    """Its refusals have a delay of their own, and take nothing from that of guesses."""
    guarded.control.refusals = refusals = NotedRefusals(clock, 0.0)
    reader = await guarded.logged_in("reader", Role.READ)
    for _ in range(20):
        assert (await guess(guarded)).status == 401
    assert refusals.delays_s[-1] == DELAY_S_MAX
    refusals.delays_s.clear()
    assert [await refused_to(reader) for _ in range(4)] == [403] * 4
    assert refusals.delays_s == [0, 0, 0, 0.1]
    assert (await guess(guarded)).status == 401
    assert refusals.delays_s[-1] == DELAY_S_MAX
