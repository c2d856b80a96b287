"""What goes wrong with the shard file: servers read a new one at different times."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from functools import partial

from bench.servers import PinLaterServer
from pinlater.client import Outcome
from pinlater.simulation.history import History, SeenAck, read_history
from tests.faults.faults import InjectedFault
from tests.faults.load import shard_of
from tests.faults.stage import Stage
from tests.faults.stores import ShardLocation

ADDED = "4"
# No server of this fault reads the shard file by itself.
_NEVER = "--set", "maintenance.file_interval_ms=3600000"
# An ack that was sent so shortly before the end of its claim may come too late on a busy machine.
_LATE_NS = 500_000_000
# Another server may have the place of a server that stands still for that long.
_PAST_ITS_LEASE_S = 13.0


async def an_empty_shard_is_added(stage: Stage) -> None:
    """Of three servers one reads the new file. The others get acks of jobs that it has stored there, and a signal seconds later.

    The shard stays, so that its jobs can be judged; a second round on the same stage finds it there, and does nothing.
    """
    if ADDED in stage.places:
        return
    before = list(stage.servers)
    first, *others = [await stage.add_server(*_NEVER) for _ in range(3)]
    for server in before:
        await _is_taken_out(stage, server)
    began = stage.load.judged
    database = await asyncio.to_thread(stage.store.start, stage.database_servers)
    stage.add_place(ADDED, ShardLocation(database, await stage.proxy_of(database), {}))
    first.signal(signal.SIGHUP)
    await stage.flows([ADDED], jobs=10)
    await stage.until(
        lambda: _know(stage, others), "the others have read the file for the sake of a job on the new shard"
    )
    await stage.lasts(5)
    for server in others:
        server.signal(signal.SIGHUP)
        await stage.lasts(5)
    await stage.back(ADDED)
    for _ in before:
        await stage.add_server()
    for server in (first, *others):
        await _is_taken_out(stage, server)
    await stage.lasts(2)
    history = await asyncio.to_thread(read_history, stage.load.recorder.lines(began))
    again = ran_again(history, ADDED)
    assert not again, f"jobs ran again although their success had been reported: {again}"


async def _is_taken_out(stage: Stage, server: PinLaterServer) -> None:
    assert await stage.take_out(server) == 0, "a stop ended badly"
    stage.load.spread()


async def _know(stage: Stage, servers: Iterable[PinLaterServer]) -> bool:
    return all([ADDED in await stage.metric(server, "pinlater_shard_healthy") for server in servers])


def ran_again(history: History, shard: str) -> list[str]:
    """Jobs of the shard that a server said not to exist, or handed out again after their worker had reported their success in time."""
    until_ns = {claim.token: claim.until_ns or 0 for claim in history.claims}
    reported: dict[str, int] = {}

    def is_in_time(ack: SeenAck) -> bool:
        return ack.succeeded and ack.started_ns < until_ns.get(ack.token, 0) - _LATE_NS

    for ack in history.acks:
        if shard_of(ack.descriptor) == shard and is_in_time(ack):
            reported[ack.descriptor] = min(ack.started_ns, reported.get(ack.descriptor, ack.started_ns))
    seen = [(ack.descriptor, ack.outcome) for ack in history.acks]
    seen += [(heartbeat.descriptor, heartbeat.outcome) for heartbeat in history.heartbeats]
    unknown = {name for name, outcome in seen if shard_of(name) == shard and outcome == Outcome.NOT_FOUND}
    again = {
        claim.descriptor
        for claim in history.claims
        if claim.started_ns > reported.get(claim.descriptor, claim.started_ns)
    }
    return sorted(unknown | again)


async def homes_of_ordered_jobs_drain_and_come_back(stage: Stage) -> None:
    """One shard after the other drains that is the home of queues, until their jobs with ordering keys are handed out elsewhere. Meanwhile
    answers of commits are lost on every shard, one server is killed, and then another one stands still.
    """
    for _ in range(stage.times(3)):
        before = stage.load.ordered_in_hand.copy()
        await stage.lasts(20)
        homes = stage.load.ordered_in_hand - before
        shard = stage.dice.choice(sorted({home for _, home in homes}))
        place = stage.places[shard]
        place.entry = {"dequeueOnly": True}
        stage.write_map()
        async with asyncio.TaskGroup() as group:
            group.create_task(_servers_and_answers_are_lost(stage))
            for moving in sorted({name for name, home in homes if home == shard}):
                what = f"{moving} has another home than {shard}"
                group.create_task(stage.until(partial(_is_elsewhere, stage, moving, shard), what))
        place.entry = {}
        stage.write_map()
        await stage.back(shard)


async def _is_elsewhere(stage: Stage, queue: str, shard: str) -> bool:
    """Whether a job with an ordering key has been handed out on another shard since it was asked last, and none on this one."""
    before = stage.load.ordered_in_hand.copy()
    await stage.load.quiet(0.5)
    found = {place for name, place in stage.load.ordered_in_hand - before if name == queue}
    return bool(found) and shard not in found


async def _servers_and_answers_are_lost(stage: Stage) -> None:
    killed, suspended, *_ = stage.dice.sample(stage.servers, len(stage.servers))
    for place in stage.places.values():
        place.proxy.lose_answer(stage.store.change(stage.dice), hang=stage.dice.random() < 0.2)
    killed.kill()
    await stage.load.quiet(stage.dice.random())
    await asyncio.to_thread(killed.start)
    stage.load.spread()
    await stage.until(lambda: stage.answers(killed), "the killed server answers")
    for place in stage.places.values():
        place.proxy.heal()
        place.proxy.lose_answer(stage.store.change(stage.dice))
    stage.suspend(suspended)
    await stage.load.quiet(max(3.0, stage.dice.choice((5.0, _PAST_ITS_LEASE_S)) * min(1.0, stage.length)))
    stage.resume(suspended)
    await stage.until(lambda: stage.answers(suspended), "the suspended server answers")
    for place in stage.places.values():
        place.proxy.heal()


ON_MAPS = (
    InjectedFault(homes_of_ordered_jobs_drain_and_come_back, harmed=None, slots_lost=True),
    InjectedFault(an_empty_shard_is_added, harmed=None),
)
"""Of whatever store."""
