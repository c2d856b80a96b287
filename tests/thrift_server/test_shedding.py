"""Where memory is short, requests that are not begun give way: those that come slowly, and those of callers that hold too much."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pinlater.domain.caller_address import address_of
from pinlater.domain.clock import ManualClock
from pinlater.server.thrift.shedding import beyond_their_share, held_bytes_min, slow_ones
from pinlater.wire.codec import encode_call
from pinlater.wire.generated import structs as types
from tests.thrift_server.conftest import CONTEXT, Client, ThriftServerUnderTest
from tests.thrift_server.fake_operations import Gate

Start = Callable[..., Awaitable[ThriftServerUnderTest]]
LIMIT_BYTES = 2_000_000
LARGE = encode_call("createQueue", 9, context=CONTEXT, name="q" * 900_000)
LONG_POLL = types.PinLaterDequeueRequest("q", 1, wait_ms=60_000)
ELSEWHERE = "127.0.0.2"


class HeldRequest(NamedTuple):
    held_bytes: int
    held_since_s: float = 0.0
    host: str = "a"


async def half_sent(desk: ThriftServerUnderTest, number: int) -> list[Client]:
    """Clients that have sent most of a large request, and stop."""
    clients = [await desk.connect() for _ in range(number)]
    for client in clients:
        client.writer.write(LARGE[:800_000])
    await desk.until(lambda: desk.server.budget.request_bytes >= number * 800_000)
    return clients


async def refused(client: Client) -> bool:
    return bool((await client.receive()).exception.detail == "TOO_MANY_WAITING")


async def test_a_frame_that_comes_slowly_gives_way_to_one_that_comes_fast(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, max_buffered_bytes=LIMIT_BYTES)
    slow = await half_sent(desk, 2)
    client = await desk.connect()
    client.writer.write(LARGE)
    assert await refused(client), "what came within a second keeps its place"
    clock.advance(seconds=2)
    client.writer.write(LARGE)
    assert (await client.receive()).exception is None
    answers = [await refused(each) for each in slow[:1]]
    assert answers == [True]
    slow[0].writer.write(LARGE[800_000:])
    assert (await slow[0].call("createQueue", name="q")).exception is None, "its connection stays usable"


async def test_a_caller_that_holds_more_than_its_share_gives_way_at_once(start: Start) -> None:
    desk = await start(max_buffered_bytes=LIMIT_BYTES)
    greedy = await half_sent(desk, 2)
    other = await desk.connect(ELSEWHERE)
    other.writer.write(LARGE)
    assert (await other.receive()).exception is None
    third = await desk.connect()
    third.writer.write(LARGE[:800_000])
    await desk.until(lambda: desk.server.budget.request_bytes >= 1_600_000)
    assert [await refused(each) for each in greedy[1:]] == [True]


async def test_frames_behind_a_long_poll_give_way_and_are_refused_in_their_turn(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, max_buffered_bytes=LIMIT_BYTES)
    gate = Gate("dequeue")
    desk.operations.before = gate
    waiting = [await desk.connect() for _ in range(2)]
    for client in waiting:
        client.send("dequeueJobs", request=LONG_POLL)
        client.writer.write(LARGE)
    await desk.until(lambda: desk.server.budget.request_bytes >= 2 * len(LARGE))
    clock.advance(seconds=2)
    other = await desk.connect()
    other.writer.write(LARGE)
    assert (await other.receive()).exception is None
    gate.open()
    outcomes = []
    for client in waiting:
        assert (await client.receive()).value.jobs
        outcomes.append((await client.receive()).exception is None)
    assert sorted(outcomes) == [False, True]
    assert desk.server.budget.request_bytes == 0


async def test_the_sweep_makes_space_for_scans_as_well(start: Start) -> None:
    clock = ManualClock()
    desk = await start(clock, max_buffered_bytes=LIMIT_BYTES)
    await half_sent(desk, 2)
    client = await desk.connect()
    client.writer.write(LARGE)
    assert await refused(client)
    client.writer.write(LARGE[:390_000])
    await desk.until(lambda: desk.server.budget.request_bytes >= 1_990_000)
    clock.advance(seconds=2)
    desk.server.sweep()
    await desk.until(lambda: desk.server.budget.request_bytes < 1_300_000)


def test_the_largest_of_the_slow_ones_give_way_and_no_more_of_them_than_needed() -> None:
    fast, small, large, larger = HeldRequest(99, held_since_s=9.9), HeldRequest(10), HeldRequest(50), HeldRequest(60)
    assert slow_ones([fast, small, large, larger], 10.0, 100) == [larger, large]
    assert slow_ones([fast], 10.0, 100) == []


def test_no_address_gives_way_below_its_share() -> None:
    asker = HeldRequest(0, host="new")
    holders = [HeldRequest(30, host="a"), HeldRequest(31, host="a"), HeldRequest(30, host="b")]
    assert beyond_their_share(holders, asker, 1_000, 90) == [holders[1]]
    assert beyond_their_share(holders, HeldRequest(0, host="a"), 1_000, 90) == []


def test_an_ipv6_network_stands_for_one_caller() -> None:
    assert address_of(("2001:db8:1:2:3::4", 1, 0, 0)) == address_of(("2001:db8:1:2:ffff::", 2, 0, 0))
    assert address_of(("2001:db8:1:3::4", 1, 0, 0)) != address_of(("2001:db8:1:2::4", 1, 0, 0))
    assert address_of(("::ffff:192.0.2.1", 1, 0, 0)) == address_of(("192.0.2.1", 1))
    assert address_of(("fe80::1%eth0", 1, 0, 2)) == "fe80::/64"
    assert address_of("") == ""


def test_connections_too_small_to_give_way_hold_half_of_the_limit_at_most() -> None:
    limit_bytes, connections = 256 * 2**20, 20_000
    assert held_bytes_min(limit_bytes, connections) * connections <= limit_bytes / 2
