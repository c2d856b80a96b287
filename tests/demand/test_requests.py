"""Requests of `/demand` that are wrong, or large."""

from __future__ import annotations

import pytest

from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX
from tests.demand.conftest import Port
from tests.history.conftest import enqueue


@pytest.mark.parametrize("query", ["", "?", "?queues=q", "?Queue=q"])
async def test_a_request_without_a_queue_is_refused_with_the_rule(port: Port, query: str) -> None:
    await port.sample()
    assert await port.get(f"/demand{query}") == (400, "Name each queue of the pool: /demand?queue=NAME&queue=NAME\n")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("queue=q&queue=nope", "'nope'"),
        ("queue=", "''"),
        ("queue=%00%0d%0aX-Evil:1", r"'\x00\r\nX-Evil:1'"),
        ("queue=../../etc/passwd", "'../../etc/passwd'"),
        ("queue=%ff%fe", "'\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}'"),
        ("queue=(other)", "'(other)'"),
        ("queue=" + "x" * 9_000, f"'{'x' * QUEUE_NAME_CHARS_MAX}'"),
    ],
)
async def test_a_queue_that_does_not_exist_is_not_found_and_named(port: Port, query: str, named: str) -> None:
    await port.sample()
    assert await port.get(f"/demand?{query}") == (404, f"There is no queue {named}\n")


async def test_a_request_names_at_most_32_queues(port: Port) -> None:
    names = [f"q{number}" for number in range(32)]
    for name in names:
        await port.core.service.queues.create_queue(name)
        await enqueue(port.core, queue=name)
    await port.sample()
    assert (await port.demand(*names))["slots"] == 32
    assert await port.get("/demand?" + "&".join(f"queue={name}" for name in (*names, "q"))) == (
        400,
        "more than 32 fields in the query\n",
    )


async def test_a_request_with_100000_queues_is_refused(port: Port) -> None:
    await port.sample()
    status, _ = await port.get("/demand?" + "queue=q&" * 100_000)
    assert status == 431


async def test_head_has_the_status_of_get_and_other_methods_are_refused(port: Port) -> None:
    await port.sample()
    assert await port.get("/demand?queue=q", "HEAD") == (200, "")
    assert (await port.get("/demand?queue=q", "POST"))[0] == 405


async def test_metrics_name_the_busiest_queues_and_add_up_the_slots_of_the_others(port: Port) -> None:
    queues = 1_000
    for number in range(queues):
        await port.core.service.queues.create_queue(f"q{number}")
        await enqueue(port.core, 1 + (number < 400), queue=f"q{number}")
    await port.sample()
    gauges = await port.gauges()
    assert len(gauges) == 501
    assert gauges["q0"] == 2
    assert gauges["(other)"] == 500
    assert sum(gauges.values()) == queues + 400
