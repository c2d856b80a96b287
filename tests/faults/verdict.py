"""What a fault did to what clients were promised: judged when it is over and everything has been drained."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pinlater.client.errors import PinLaterError
from pinlater.server.sharding.settings import ShardingSettings
from pinlater.simulation.history import SUCCEEDED, History, check, read_history
from tests.faults.faults import InjectedFault
from tests.faults.latency import KINDS, PICKUP, PICKUP_THERE, SENT_ON, Figures
from tests.faults.load import QUEUES, client_of, shard_of
from tests.faults.recovery import HandOver, Recovery
from tests.faults.rollback import judged, stopped_again
from tests.faults.stage import Stage
from tests.faults.stores import Sums

DRAIN_S_MAX = 60.0
SLOWER_MAX = 3.0
_LOOKUP_CHUNK = 1_000
# What a pickup may take longer: until a dequeue goes on without the harmed shard.
_WAIT_MS = {kind: float(ShardingSettings().slow_ms) for kind in (PICKUP, PICKUP_THERE)}


class Compared(NamedTuple):
    """Calls of one kind that the shards beside the harmed one served, before the fault and during it."""

    kind: str
    normal: Figures
    during: Figures

    @property
    def slower(self) -> float:
        """How many times, at the median or the 99th percentile, whichever is worse.

        A dequeue also waits for the harmed shard: of pickups only the median counts, and only beyond that wait (`_WAIT_MS`).
        An enqueue that was sent on has waited at the harmed shard, and does not count.
        """
        if self.kind == SENT_ON:
            return 1.0
        pairs = [(self.normal.p50_ms, self.during.p50_ms), (self.normal.p99_ms, self.during.p99_ms)]
        wait_ms = _WAIT_MS.get(self.kind, 0.0)
        judged = pairs[:1] if wait_ms else pairs
        return max((max(0.0, during - wait_ms) / normal for normal, during in judged if normal), default=1.0)

    def text(self) -> str:
        """Of the other shards, unless the kind says where."""
        before, now = self.normal, self.during
        kind = self.kind if self.kind == PICKUP_THERE else f"others' {self.kind}"
        judged = "not judged" if self.kind == SENT_ON else f"{self.slower:.1f} x"
        return (
            f"{kind} p50 {before.p50_ms:.1f} -> {now.p50_ms:.1f} ms, p99 {before.p99_ms:.1f} -> {now.p99_ms:.1f} ms "
            f"({judged}; {before.calls} and {now.calls} calls)"
        )


@dataclass(frozen=True, slots=True)
class FaultVerdict:
    """What one fault showed. `broken` is every promise that was, in words."""

    name: str
    seconds: float
    drained_s: float
    jobs: int
    ordered: int  # of these have ordering keys
    broken: list[str]
    compared: list[Compared]
    errors: Counter[str]
    trouble: dict[str, int]
    lost: int = 0  # jobs that a replica lacked, or whose keys were deleted
    recoveries: Sequence[Recovery] = ()
    hand_overs: Sequence[HandOver] = ()

    @property
    def slow(self) -> list[str]:
        """Which calls took more than three times as long as before."""
        return [each.text() for each in self.compared if each.slower > SLOWER_MAX]

    def text(self) -> str:
        """For the log."""
        head = (
            f"{self.name}: {self.jobs} jobs, {self.ordered} with ordering keys, {len(self.broken)} broken promises, "
            f"lasted {self.seconds:.1f} s, drained in {self.drained_s:.1f} s"
        )
        seen = [f"{count} {what}" for what, count in sorted(self.errors.items())]
        trouble = [f"{count} {what}" for what, count in self.trouble.items() if count]
        lines = [
            head,
            *(f"  {each.text()}" for each in self.compared if each.during.calls),
            f"  clients saw: {', '.join(seen) or 'no error'}",
            *(
                [f"  lost with the tail that a replica lacked, or with their keys: {self.lost} jobs"]
                if self.lost
                else []
            ),
            *(f"  {recovery.text()}" for recovery in self.recoveries),
            *(f"  {hand_over.text()}" for hand_over in self.hand_overs),
            *([f"  servers counted: {', '.join(trouble)}"] if trouble else []),
            *(f"  BROKEN {each}" for each in self.broken[:20]),
        ]
        return "\n".join(lines)


_COUNTED = {
    "deadlocks": "pinlater_store_deadlocks",
    "lock waits": "pinlater_store_lock_waits",
    "lost connections": "pinlater_store_lost_connections",
    "outcomes settled": "pinlater_store_outcomes_settled",
    "slots lost": "pinlater_store_slots_lost",
    "jobs without data": "pinlater_store_jobs_lost",
}


async def suffer(stage: Stage, fault: InjectedFault, *, normal_s: float) -> FaultVerdict:
    """A quiet stretch, the fault, a drain, the verdict; then the load goes on."""
    quiet_at = time.monotonic()
    await stage.lasts(normal_s)
    errors, trouble, lost = stage.load.errors.copy(), await _trouble(stage), len(stage.lost)
    began = time.monotonic()
    broken: list[str] = []
    try:
        await fault.act(stage)
    except Exception as error:  # noqa: BLE001 the rest is worth a look, too
        broken.append(f"{fault.name}: {error!r}")
    ended = time.monotonic()
    seen = stage.load.errors - errors
    after = await _trouble(stage)
    # A server that began anew counts from nothing.
    changes = {what: max(0, round(after[what] - before)) for what, before in trouble.items()}
    if changes["slots lost"] and not fault.slots_lost:
        broken.append(f"a place of a server that lived was taken over {changes['slots lost']} times")
    if changes["jobs without data"] and not fault.loses_jobs:
        broken.append(f"{changes['jobs without data']} jobs were in an index and not there")
    if seen and not fault.errors and not changes["stalls"]:
        broken.append(f"callers saw errors: {dict(seen)}")
    drained_s, wrong = await judge(stage)
    jobs = sum(stage.load.enqueued.values())
    compared = _compare(stage, fault, quiet_at, began, ended)
    lost = len(stage.lost) - lost
    recoveries, stage.recoveries = stage.recoveries, []
    hand_overs, stage.hand_overs = stage.hand_overs, []
    return FaultVerdict(
        fault.name,
        ended - began,
        drained_s,
        jobs,
        stage.load.ordered,
        [*broken, *wrong, *(late for recovery in recoveries for late in recovery.late())],
        compared,
        seen,
        changes,
        lost,
        recoveries,
        hand_overs,
    )


def _compare(stage: Stage, fault: InjectedFault, quiet_at: float, began: float, ended: float) -> list[Compared]:
    """The latency of the shards that the fault did not harm, and of its claims where they go on."""
    if fault.harmed is None:
        return []
    latencies, others = stage.load.latencies, stage.others(fault.harmed)

    def compared(kind: str, name: str, shards: Collection[str]) -> Compared:
        before = latencies.figures(kind, shards, quiet_at, began)
        return Compared(name, before, latencies.figures(kind, shards, began, ended))

    there = [compared(PICKUP, PICKUP_THERE, {fault.harmed})] if fault.claims_go_on else []
    return [*[compared(kind, kind, others) for kind in KINDS], *there]


async def _trouble(stage: Stage) -> dict[str, float]:
    """What the servers count, by its name here."""
    found = {
        what: sum([await stage.total(metric, shard) for shard in stage.places]) for what, metric in _COUNTED.items()
    }
    return {**found, "stalls": await stage.stalls()}


async def judge(stage: Stage, *, everything: bool = False) -> tuple[float, list[str]]:
    """Drains, and looks at what clients saw since it was looked at last: how long the drain took in seconds, and what is broken.

    The load goes on after. With `everything` all is looked at once more.
    """
    load = stage.load
    load.pause()
    try:
        await _let_go_again(stage)
        drained_s, broken = await _drain(stage)
        await load.rest()
        lines = load.recorder.lines(0 if everything else load.judged)
        load.judged += 0 if everything else len(lines)
        # In threads: the proxies are on this loop.
        history = await asyncio.to_thread(read_history, lines)
        final = await _final_states(stage, history.seen())
        found = await asyncio.to_thread(check, history, final, settings=load.settings)
        wrong = judged(found, history, stage.rollbacks, stage.deleted)
        stage.lost |= wrong.lost
        load.failed |= history.has_failed() - wrong.excused
        load.may_have_failed |= (history.may_have_failed() | wrong.excused) - wrong.lost
        broken += [f"{each.kind.name} {each.descriptor} {each.text}" for each in wrong.broken]
        broken += unearned(history, final)
        broken += await _miscounted(stage)
        broken += _crashed(stage)
    except PinLaterError as error:
        broken = [f"no verdict is possible: {error!r}"]
        drained_s = DRAIN_S_MAX
    finally:
        load.go_on()
    return drained_s, [*load.unexpected, *broken]


async def _let_go_again(stage: Stage) -> None:
    """Does what an operator does for the keys that failed jobs stop again after a rollback: the jobs behind would wait forever."""
    if stage.rollbacks:
        history = await asyncio.to_thread(read_history, stage.load.recorder.lines(stage.load.judged))
        for queue, key in stopped_again(history, stage.rollbacks):
            await stage.load.unblock(queue, key)


async def _drain(stage: Stage) -> tuple[float, list[str]]:
    """Until every enqueue is answered and no job is left; what never comes to an end. An overloaded machine only takes longer."""
    load, began = stage.load, time.monotonic()
    left: dict[str, int] = {}
    fewest, ends_at = math.inf, began + DRAIN_S_MAX
    async with client_of(stage.server_set) as client:
        while time.monotonic() < ends_at:
            counted = await client.queue_stats(*QUEUES)
            totals = {stats.queue: stats.total("pending") + stats.total("in_progress") for stats in counted}
            left = {queue: total for queue, total in totals.items() if total}
            if not load.unanswered and not left and not load.busy:
                return time.monotonic() - began, []
            if sum(left.values()) < fewest:
                fewest, ends_at = sum(left.values()), time.monotonic() + DRAIN_S_MAX
            await asyncio.sleep(0.1)
    stuck = [f"{jobs} jobs of {queue} were left, none done for {DRAIN_S_MAX:g} s" for queue, jobs in left.items()]
    stuck += [f"the enqueue {key} was never answered" for key in sorted(load.unanswered)]
    return time.monotonic() - began, stuck or ["a worker's call was never answered"]


async def _final_states(stage: Stage, descriptors: Iterable[str]) -> dict[str, int]:
    """The state of each, as a lookup tells it now."""
    ordered, states = sorted(descriptors), {}
    async with client_of(stage.server_set) as client:
        for start in range(0, len(ordered), _LOOKUP_CHUNK):
            found = await client.lookup(ordered[start : start + _LOOKUP_CHUNK])
            states.update({descriptor: int(info.state) for descriptor, info in found.items()})
    return states


def unearned(history: History, final: Mapping[str, int]) -> list[str]:
    """Jobs that have succeeded although no ack was sent that may have done it."""
    may_have = {ack.descriptor for ack in history.acks if ack.succeeded and ack.outcome in (None, 0)}
    done = {descriptor for descriptor, state in final.items() if state == SUCCEEDED}
    return [f"{descriptor} has succeeded without an ack" for descriptor in sorted(done - may_have)]


def expected_sums(counted: Sums, stored: int, failed: int, may_have_failed: int) -> Sums:
    """Returns the sums that clients can explain and that come closest to those that a shard counted, once each of its jobs has ended.

    Clients know that `stored` jobs exist, that `failed` of these have failed, and that no more than `may_have_failed` can have.
    """
    unfinished = min(max(counted.unfinished, failed), may_have_failed)
    return Sums(stored, stored - unfinished, stored - unfinished, unfinished)


async def _miscounted(stage: Stage) -> list[str]:
    """Tables that don't agree, and counters that don't with what clients were told: every enqueue has been answered by now."""
    broken: list[str] = []

    def number(descriptors: Iterable[str], shard: str) -> int:
        return sum(shard_of(descriptor) == shard for descriptor in descriptors)

    for shard, place in stage.places.items():
        broken += [f"shard {shard}: {each}" for each in await stage.inconsistencies(shard)]
        counted = await stage.store.sums(place, stage.prefix, shard)
        expected = expected_sums(
            counted,
            stage.load.enqueued[shard] - number(stage.lost, shard),
            number(stage.load.failed, shard),
            number(stage.load.may_have_failed, shard),
        )
        if shard in stage.forgetful:
            expected = expected._replace(enqueued=counted.enqueued, succeeded=counted.succeeded)
        if counted != expected:
            broken.append(f"shard {shard} counts {counted}; clients know of {expected}")
    return broken


def _crashed(stage: Stage) -> list[str]:
    """Unexpected exceptions in a server's log."""
    logs = sorted(stage.folder.glob("server-*.log"))
    return [f"{log.name} shows a traceback" for log in logs if "Traceback (most recent" in log.read_text("utf-8")]
