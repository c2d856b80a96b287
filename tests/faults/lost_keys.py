"""Keys of a Redis shard are deleted (evicted, or by an operator's DEL) in the middle of work, one kind after the other."""

from __future__ import annotations

import asyncio
import time
from random import Random

from pinlater.server.storage.redis.keys import parts_of
from tests.databases.redis import RedisServer
from tests.faults.faults import HARMED, InjectedFault
from tests.faults.stage import Stage
from tests.redis.lost_keys import KINDS, keys_of_kind

_JOBS_DELETED = 20
_REPAIRED_S = 300.0  # servers compare a sum with the jobs twice, a thousand jobs every five seconds


async def keys_are_deleted(stage: Stage) -> None:
    """Jobs go with their own keys and with no others, each is counted as lost, and in the end the shard's keys agree again."""
    server: RedisServer = stage.places[HARMED].database
    front = f"{stage.prefix}{{{HARMED}}}:".encode()
    kinds = KINDS if stage.times(2) > 1 else sorted(stage.dice.sample(KINDS, 6))
    before = await stage.total("pinlater_store_jobs_lost", HARMED)
    stage.forgetful.add(HARMED)
    for kind in kinds:
        stage.deleted |= await asyncio.to_thread(_delete, server, front, kind, stage.dice)
        if kind == "j":  # before the last trace of these jobs goes with another key
            await stage.until(lambda: _counted(stage, before), "the deleted jobs are counted as lost")
        if kind == "fb":  # a sum that is more than half right stays as it is
            await _until_consistent(stage)
        await stage.back(HARMED)
        await stage.lasts(2)
    await _until_consistent(stage)
    assert await _counted(stage, before), "more jobs are counted as lost than were deleted"


ON_KEYS = (InjectedFault(keys_are_deleted, slots_lost=True, loses_jobs=True),)


async def _counted(stage: Stage, before: float) -> bool:
    return await stage.total("pinlater_store_jobs_lost", HARMED) - before == len(stage.deleted)


def _delete(server: RedisServer, front: bytes, kind: str, dice: Random) -> set[tuple[str, int]]:
    """All keys of the kind, but of jobs some: shard and id of each job that went."""
    with server.session() as ask:
        found = sorted(keys_of_kind(ask("KEYS", "*"), front, kind))
        if kind != "j":
            if found:
                ask("DEL", *found)
            return set()
        chosen = dice.sample(found, min(_JOBS_DELETED, len(found)))
        gone = [key for key in chosen if ask("DEL", key)]
    return {(HARMED, parts_of(key.removeprefix(front + b"j"))[2]) for key in gone}


async def _until_consistent(stage: Stage) -> None:
    """Waits until the servers have rebuilt the keys, while the load pauses: keys agree only while no call is in flight."""
    stage.load.pause()
    try:
        ends_at = time.monotonic() + _REPAIRED_S
        while left := await stage.inconsistencies(HARMED):
            assert time.monotonic() < ends_at, f"not rebuilt within {_REPAIRED_S:g} s: {left[:5]}"
            await stage.load.quiet(0.2)
    finally:
        stage.load.go_on()
