"""Wakes between servers: which server is told what, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pinlater.server.cluster.forwarding.messages import WAKES_MAX, Wake
from pinlater.server.dispatch import peer_wakes
from pinlater.server.dispatch.interest import BITS, bit_of
from pinlater.server.dispatch.peer_wakes import PeerWakes

WAIT_S = 30.0
EVERY_QUEUE = (1 << BITS) - 1


class LinkToServer:
    """A connection to another server, and what was written to it. `takes`: whether that server takes what is written."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.messages: list[list[Wake]] = []

    def wake(self, wakes: Sequence[Wake]) -> bool:
        if self.takes:
            self.messages.append(list(wakes))
        return self.takes

    @property
    def told(self) -> dict[str, int]:
        """The jobs told for each queue."""
        told: dict[str, int] = {}
        for wake in [wake for message in self.messages for wake in message]:
            told[wake.queue] = told.get(wake.queue, 0) + wake.jobs
        return told

    @property
    def past_owner(self) -> set[str]:
        return {wake.queue for message in self.messages for wake in message if wake.past_owner}

    async def until_told(self, jobs: int) -> dict[str, int]:
        """What was told, once the jobs add up to this number."""
        async with asyncio.timeout(WAIT_S):
            while sum(self.told.values()) < jobs:
                await asyncio.sleep(0.001)
        return self.told


def wakes_over(*links: LinkToServer, waits: int = EVERY_QUEUE) -> PeerWakes:
    """Of a server with these connections to others."""
    wakes = PeerWakes(lambda *_: None)
    wakes.has_peers = True
    for link in links:
        wakes.know_waits(link, waits)
    return wakes


async def test_all_others_are_told_before_the_enqueue_goes_on() -> None:
    one, two = LinkToServer(), LinkToServer()
    wakes_over(one, two).tell("emails", 2)
    assert one.messages == two.messages == [[Wake("emails", 2, False)]]


async def test_a_wake_says_whether_the_owner_knows_of_the_jobs() -> None:
    link = LinkToServer()
    wakes = wakes_over(link)
    wakes.tell("first", 1)  # sent at once; the others share a message
    wakes.tell("known", 1)
    wakes.tell("mixed", 1)
    wakes.tell("mixed", 2, past_owner=True)
    assert await link.until_told(5) == {"first": 1, "known": 1, "mixed": 3}
    assert link.past_owner == {"mixed"}


async def test_a_server_is_woken_only_for_queues_that_its_dequeues_wait_for() -> None:
    emails, nothing, gone = LinkToServer(), LinkToServer(), LinkToServer()
    wakes = wakes_over(emails, waits=bit_of("emails"))
    wakes.know_waits(nothing, 0)
    wakes.know_waits(gone, bit_of("other"))
    wakes.know_waits(gone, None)
    wakes.tell("other", 1)
    wakes.tell("emails", 2)
    assert emails.messages == [[Wake("emails", 2, False)]]
    assert nothing.messages == gone.messages == []
    assert wakes.sent == 1


async def test_a_server_that_says_late_that_it_waits_is_woken_for_jobs_that_came_meanwhile() -> None:
    """Also one to which there was no connection."""
    late, new = LinkToServer(), LinkToServer()
    wakes = wakes_over(late, waits=0)
    wakes.tell("emails", 2)
    wakes.tell("other", 1)
    wakes.tell("emails", 1)
    assert wakes.sent == 0
    wakes.know_waits(late, bit_of("emails"))
    wakes.know_waits(new, bit_of("emails"))
    assert late.messages == new.messages == [[Wake("emails", 3, True)]]  # the owner may know of them or not
    wakes.know_waits(late, bit_of("emails") | bit_of("third"))
    assert late.told == {"emails": 3}
    wakes.tell("third", 1)
    assert late.told == {"emails": 3, "third": 1}


async def test_jobs_that_came_long_before_a_server_waits_wake_it_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_wakes, "_NEW_S", 0.0)
    link = LinkToServer()
    wakes = wakes_over(link, waits=0)
    wakes.tell("emails", 2)
    wakes.know_waits(link, bit_of("emails"))
    assert link.messages == []
    wakes.tell("emails", 1)
    assert link.told == {"emails": 1}


async def test_wakes_of_one_moment_share_messages() -> None:
    """A thousand enqueues in one moment are a few messages, and none of their jobs is forgotten."""
    link = LinkToServer()
    wakes = wakes_over(link)
    for number in range(1000):
        wakes.tell(f"queue{number % 3}", 1)
    assert await link.until_told(1000) == {"queue0": 334, "queue1": 333, "queue2": 333}
    assert wakes.sent == 2


async def test_many_queues_are_several_messages() -> None:
    link = LinkToServer()
    wakes = wakes_over(link)
    names = [f"q{number}" for number in range(2 * WAKES_MAX + 1)]
    wakes.tell("first", 1)
    for name in names:
        wakes.tell(name, 1)
    assert set(await link.until_told(len(names) + 1)) == {"first", *names}
    assert [len(message) for message in link.messages] == [1, WAKES_MAX, WAKES_MAX, 1]


async def test_the_others_are_woken_although_one_takes_nothing() -> None:
    full, one = LinkToServer(takes=False), LinkToServer()
    wakes = wakes_over(full, one)
    for number in range(5):
        wakes.tell("emails", number + 1)
    assert await one.until_told(15) == {"emails": 15}
    assert wakes.sent == len(one.messages)


async def test_alone_nothing_is_kept_or_sent() -> None:
    wakes = PeerWakes(lambda *_: None)
    wakes.tell("emails", 1)
    new = LinkToServer()
    wakes.know_waits(new, EVERY_QUEUE)
    assert new.messages == []
    assert wakes.sent == 0


async def test_nothing_is_sent_after_the_end() -> None:
    link = LinkToServer()
    wakes = wakes_over(link)
    wakes.tell("emails", 1)
    wakes.tell("emails", 1)
    wakes.close()
    wakes.tell("emails", 1)
    for _ in range(10):
        await asyncio.sleep(peer_wakes.GAP_S)
    assert link.messages == [[Wake("emails", 1, False)]]


async def test_each_queue_that_another_server_named_is_woken() -> None:
    woken: list[tuple[str, int, bool]] = []
    wakes = PeerWakes(lambda *queue: woken.append(queue))
    wakes.take([Wake("emails", 2, False), Wake("other", 1, True)])
    assert woken == [("emails", 2, False), ("other", 1, True)]
    assert wakes.received == 1
