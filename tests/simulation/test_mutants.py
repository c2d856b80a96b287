"""The simulator finds defects: each is built into a server, a store or the rules of a job, and is caught within some hundred tiny seeds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

import pytest

from pinlater.domain.clock import WallClock
from pinlater.domain.errors import PinLaterError
from pinlater.domain.job import Holder, JobState, Outcome
from pinlater.domain.queue import Home, Queue
from pinlater.server.cluster.forwarding.forward_lane import ForwardedCall, NotSent
from pinlater.server.cluster.forwarding.messages import CallKind
from pinlater.server.cluster.forwarding.peer_connection import PeerConnection
from pinlater.server.cluster.forwarding.unconfirmed_claims import Lost
from pinlater.server.dispatch import claiming as dispatch_claiming
from pinlater.server.dispatch.change_poller import ChangePoller
from pinlater.server.dispatch.identity import Identity
from pinlater.server.dispatch.wakeups import Wakeups
from pinlater.server.operations.shard_router import ShardRouter, StoredPart
from pinlater.server.storage.commands import (
    ClaimJobs,
    Command,
    DeleteJobs,
    FinishJobs,
    ListQueues,
    ReleaseJobs,
    TimeOutClaims,
)
from pinlater.server.storage.relational.dialect import OrderedRow
from pinlater.server.storage.relational.ordering import EnteringJob, LastPlaces
from pinlater.server.storage.sqlite.dialect import at_once
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.server.storage.table import Table, entry_of
from pinlater.server.storage.values import Acked, Claimed, ClaimOrder, JobAck, ShardTime
from pinlater.simulation import cluster, store_session
from pinlater.simulation.store import SimulatedStore
from pinlater.simulation.store_session import Session
from pinlater.wire.generated.structs import Job
from tests.commands import everywhere
from tests.simulation.defects import forget_successes
from tests.simulation.faults import Faults
from tests.simulation.run import CLOCKS, TINY, SimulationResult, SimulationRun, carry_out, plan_of, simulate

pytestmark = pytest.mark.timeout(900)  # the machine may be busy with other things

# About one seed in a hundred finds the rarest. `make test` runs more of the unchanged code.
_SEEDS = 1_200


def tiny(seed: int) -> SimulationResult:
    return simulate(seed, TINY)


def caught(make: Callable[[int], SimulationResult] = tiny) -> set[str]:
    """The kinds of promises that the first seed with a violation breaks."""
    for seed in range(_SEEDS):
        broken = make(seed).broken
        if broken:
            print(f"found by seed {seed}")
            return {text.split()[0] for text in broken}
    return set()


class ForgetfulSession(Session):
    """Deletes overdue claims of queues that it did not know when it was opened, as if these did not exist."""

    known: Sequence[str] = ()

    async def open(self, now_ms: int) -> None:
        await super().open(now_ms)
        self.known = [queue.name for queue in at_once(self.store.data.submit(ListQueues()))]

    async def _time_out_claims_of_known(self, now_ms: int, limit: int, quarantine_after: int = 0) -> Sequence[Any]:
        for key, job in [row[1:] for row in self.store.jobs(JobState.IN_PROGRESS)]:
            if (job.claim_deadline_ms or now_ms) < now_ms and key.queue not in self.known:
                at_once(self.store.data.submit(DeleteJobs([key])))
        swept: Sequence[Any] = await Session.table[TimeOutClaims](self, now_ms, limit, quarantine_after)
        return swept

    table: ClassVar[Table] = Session.table | dict([entry_of(TimeOutClaims)(_time_out_claims_of_known)])


class ForgetfulStore(SimulatedStore):
    """One whose sessions take for absent what they do not remember."""

    def session(self) -> Session:
        return ForgetfulSession(self)


def test_a_sweep_that_takes_unknown_queues_for_deleted_is_caught() -> None:
    assert "LOST" in caught(lambda seed: carry_out(lambda: SimulationRun(plan_of(seed, TINY), ForgetfulStore)))


def test_an_ack_that_ignores_the_claim_token_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = MemoryShard.table[FinishJobs]

    async def finish(shard: MemoryShard, acks: Sequence[JobAck], now_ms: int) -> Sequence[Acked]:
        answers: Sequence[Acked] = await plain(shard, [ack._replace(token=None) for ack in acks], now_ms)
        return answers

    everywhere(monkeypatch, MemoryShard, FinishJobs, finish)
    assert caught() & {"STALE_APPLIED", "TWICE", "REVERSED"}


def test_a_success_that_is_answered_and_not_stored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_successes(monkeypatch)
    assert caught() & {"REVERSED", "STALE_APPLIED"}


class GenerousSession(Session):
    """Gives jobs back that it has just handed out: each once, so that workers do not run after the same one for ever."""

    def __init__(self, store: SimulatedStore) -> None:
        super().__init__(store)
        self.given_away = set[int]()

    async def _claim_generously(self, orders: Sequence[ClaimOrder], now_ms: int) -> Sequence[Any]:
        given: Sequence[Any] = await Session.table[ClaimJobs](self, orders, now_ms)
        for ref in self.store.claims():
            if ref.key.id not in self.given_away:
                self.given_away.add(ref.key.id)
                at_once(self.store.data.submit(ReleaseJobs([ref], now_ms)))
        return given

    table: ClassVar[Table] = Session.table | dict([entry_of(ClaimJobs)(_claim_generously)])


class GenerousStore(SimulatedStore):
    """A shard that hands out jobs that are claimed."""

    def session(self) -> Session:
        return GenerousSession(self)


def test_a_job_that_is_handed_out_though_it_is_claimed_is_caught() -> None:
    assert "TWICE" in caught(lambda seed: carry_out(lambda: SimulationRun(plan_of(seed, TINY), GenerousStore)))


def test_a_repeat_that_is_not_looked_for_on_other_shards_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def find_nothing(*_: object) -> list[StoredPart]:
        return []

    monkeypatch.setattr(ShardRouter, "_find", find_nothing)
    assert caught() & {"DOUBLED", "STORED"}


def test_one_token_for_several_claims_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Giving one of them back by its token takes the others along. One seed in thirty of this load finds it."""
    plain = Identity.holder

    def holder(self: Identity, source: str, now_ms: int) -> Holder:
        return plain(self, source, now_ms)._replace(token="the one")

    monkeypatch.setattr(Identity, "holder", holder)
    busy = TINY._replace(servers=(1,), stores=(1,), busy_s=(1.0,), requests=(8,), workers=(3,))
    assert caught(lambda seed: simulate(seed, busy)) & {"TWICE", "STALE_APPLIED", "REVERSED"}


def test_one_token_for_all_attempts_of_a_long_poll_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release of a claim of unknown outcome then ends a later claim of the same poll. One seed in twenty of this load finds it."""
    monkeypatch.setattr(dispatch_claiming, "_holder_of", lambda holder, *_: holder)
    monkeypatch.setattr(Faults, "kinds", lambda self: [self._answers_of_claims_lost])
    scale = TINY._replace(servers=(1,), faults=(3,), busy_s=(1.0,), requests=(8,), workers=(3,), wait_ms=(1_000,))
    assert caught(lambda seed: simulate(seed, scale)) & {"TWICE", "STALE_APPLIED", "REVERSED"}


# Servers that own all slices and forward to each other over connections that break.
FORWARDING = TINY._replace(owned=1.0, faults=(2,), busy_s=(1.0,), requests=(8,))


def caught_by_broken_connections(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    monkeypatch.setattr(Faults, "kinds", lambda self: [self._connections_broken])
    return caught(lambda seed: simulate(seed, FORWARDING))


def test_a_forwarded_call_that_was_sent_and_is_reported_as_not_sent_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its connection is lost; the server then stores the jobs on another shard. One seed in thirty finds it."""

    def lost(self: ForwardedCall[Any, Any]) -> None:
        self.lane.ended(self)
        self.lose(NotSent("The connection is lost", retry_after_ms=100))

    monkeypatch.setattr(ForwardedCall, "lost", lost)
    assert caught_by_broken_connections(monkeypatch) & {"DOUBLED", "STORED"}


def test_a_forwarded_claim_that_came_and_is_said_to_be_lost_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner then gives jobs back that a worker has. One seed in forty finds it."""
    monkeypatch.setattr(PeerConnection, "as_lost", property(lambda self: Lost(self.nonce, 0)))
    assert "TWICE" in caught_by_broken_connections(monkeypatch)


def test_a_forwarded_claim_whose_answer_is_given_to_a_second_caller_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one that would get nothing from the same queue. Every other seed finds it."""
    plain, last = ForwardedCall.give, dict[tuple[object, str], Claimed]()

    def given(call: ForwardedCall[Any, Any], request: Any, answer: Any) -> Any:
        place = (call.lane, request.queue)
        if isinstance(answer, Claimed) and any(answer.jobs):
            last[place] = answer
            return answer
        return last.pop(place, answer)

    def give(self: ForwardedCall[Any, Any], answers: Sequence[Any]) -> None:
        if self.lane.kind is CallKind.CLAIM:
            answers = [given(self, caller[0], each) for caller, each in zip(self.callers, answers, strict=True)]
        plain(self, answers)

    monkeypatch.setattr(ForwardedCall, "give", give)
    assert "TWICE" in caught()


class HastySession(Session):
    """Answers acks as if they were committed, whatever came of the transaction."""

    def submit(self, command: Command[Any]) -> Coroutine[Any, Any, Any]:
        carried_out = super().submit(command)
        return self._hastily(command.acks, carried_out) if isinstance(command, FinishJobs) else carried_out

    async def _hastily(
        self, acks: Sequence[JobAck], carried_out: Coroutine[Any, Any, Sequence[Acked]]
    ) -> Sequence[Acked]:
        try:
            return await carried_out
        except PinLaterError:
            return [Acked(Outcome.APPLIED, JobState.SUCCEEDED) for _ in acks]


class HastyStore(SimulatedStore):
    """A shard whose acks are answered too early."""

    def session(self) -> Session:
        return HastySession(self)


def test_acks_that_are_answered_before_they_are_committed_are_caught() -> None:
    assert caught(lambda seed: carry_out(lambda: SimulationRun(plan_of(seed, TINY), HastyStore))) & {
        "REVERSED",
        "STALE_APPLIED",
    }


def test_waiting_dequeues_that_are_not_woken_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_nowhere(self: ChangePoller) -> None:
        del self

    monkeypatch.setattr(Wakeups, "_wake", lambda *_, **__: None)
    monkeypatch.setattr(ChangePoller, "look", look_nowhere)
    assert "UNWOKEN" in caught()


# Load in which each job has an ordering key.
ORDERED = TINY._replace(ordered=(1.0,))


def caught_in_order() -> set[str]:
    return caught(lambda seed: simulate(seed, ORDERED))


def test_jobs_that_do_not_wait_behind_others_of_their_ordering_key_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = LastPlaces.enter

    def behind_none(self: LastPlaces, jobs: Sequence[EnteringJob]) -> tuple[list[OrderedRow], dict[int, int]]:
        rows, _ = enter(self, jobs)
        return rows, {}

    monkeypatch.setattr(LastPlaces, "enter", behind_none)
    assert "DISORDERED" in caught_in_order()


def test_jobs_of_an_ordering_key_on_any_shard_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def home(self: ShardRouter, queue: Queue, jobs: Sequence[Job]) -> str:
        del queue
        shards = list(self._shards)
        return shards[len(jobs) % len(shards)].name

    monkeypatch.setattr(ShardRouter, "_home_of_order", home)
    monkeypatch.setattr(Home, "is_at", lambda *_: True)
    assert "DISORDERED" in caught_in_order()


def test_jobs_on_a_new_home_that_do_not_wait_for_those_on_the_former_one_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Home, "waits", False)
    assert "DISORDERED" in caught(lambda seed: simulate(seed, ORDERED._replace(drained=1.0)))


def test_dequeues_that_are_not_woken_for_the_next_job_of_an_ordering_key_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Wakeups, "came_first", lambda *_: None)
    assert "UNWOKEN" in caught_in_order()


def test_settings_and_pauses_that_are_answered_and_not_stored_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "changed", lambda self, *_, **__: self)
    assert caught() >= {"UNSETTLED", "UNPAUSED"}


def caught_by_jumps(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Where clocks jump and servers start meanwhile."""
    monkeypatch.setattr(Faults, "kinds", Faults.clock_kinds)
    return caught(lambda seed: simulate(seed, CLOCKS))


def test_servers_that_follow_the_clock_of_their_machine_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SystemClock", WallClock)
    assert "TWICE" in caught_by_jumps(monkeypatch)


def test_servers_that_take_the_time_of_a_database_though_others_go_by_another_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_session, "shard_time", lambda now_ms, _: ShardTime(now_ms, False))
    assert caught_by_jumps(monkeypatch) & {"TWICE", "STUCK", "UNWOKEN"}


def test_jobs_whose_claims_never_time_out_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sweep_nothing(self: Session, now_ms: int, limit: int, quarantine_after: int) -> Sequence[Any]:
        del self, now_ms, limit, quarantine_after
        return []

    everywhere(monkeypatch, Session, TimeOutClaims, sweep_nothing)
    assert "STUCK" in caught()
