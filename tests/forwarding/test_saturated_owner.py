"""A server whose event loop has no time left keeps claims and acks, and others store plain enqueues past it."""

from __future__ import annotations

from typing import Any

from pinlater.server.cluster.forwarding.forward_lane import ForwardLane
from pinlater.server.cluster.forwarding.messages import CallKind, Told
from pinlater.server.sharding.lane import Lane
from pinlater.server.storage.options import Options
from pinlater.server.storage.values import InsertRequest, NewJob
from tests.forwarding.two_servers import Asker, Owner, request, until


def plain(job_id: int, *, ordering_key: str | None = None) -> InsertRequest:
    return InsertRequest("emails", [NewJob(job_id, b"x", 1, 5, 3, Options(ordering_key=ordering_key))], "key")


async def test_plain_enqueues_go_past_a_saturated_server_until_it_has_time_again(asker: Asker, owner: Owner) -> None:
    stored: list[InsertRequest] = []

    async def store(requests: list[InsertRequest]) -> list[Any]:
        stored.extend(requests)
        return ["stored here"] * len(requests)

    lane: ForwardLane[Any, Any] = ForwardLane(asker.link, CallKind.INSERT, "1", own=lambda: Lane("own", store))

    async def says(loop: float) -> None:
        owner.listener.told = lambda: Told((), {}, 0, loop=loop)
        asker.link.look(ask_after_s=0.0, stall_s=60.0)
        await until(lambda: asker.link.told is not None and asker.link.told.loop == loop)

    with_keys = [request(10), plain(11, ordering_key="a")]
    for job_id, loop in enumerate([0.85, 0.95, 0.75, 0.65, 0.85]):
        await says(loop)
        for enqueue in (plain(job_id), *with_keys):
            await lane.submit(enqueue)
    assert [each.jobs[0].id for each in stored] == [1, 2]
    assert [item.jobs[0].id for _, _, [item] in owner.asked] == [0, 10, 11, 10, 11, 10, 11, 3, 10, 11, 4, 10, 11]


async def test_an_enqueue_goes_to_a_saturated_server_if_this_server_cannot_use_the_shard(
    asker: Asker, owner: Owner
) -> None:
    owner.listener.told = lambda: Told((), {}, 0, loop=0.95)
    asker.link.look(ask_after_s=0.0, stall_s=60.0)
    await until(lambda: asker.link.is_saturated)
    lane: ForwardLane[Any, Any] = ForwardLane(asker.link, CallKind.INSERT, "1")
    await lane.submit(plain(1))
    assert len(owner.asked) == 1
