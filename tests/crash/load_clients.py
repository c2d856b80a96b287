"""Producers and workers in threads that go on through anything: a call without an answer is recorded as that, and the next is made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Concatenate, ParamSpec, TypeVar

from pinlater.simulation.history import HistoryRecorder
from tests.crash.wire_client import GONE, Job, WireClient, refusal_of

P = ParamSpec("P")
T = TypeVar("T")

QUEUE = "crash"
CLAIM_TIMEOUT_MS = 1_500
_RECONNECT_SECONDS = 0.02
# The share of jobs with an ordering key, and the number of keys: so that those of a key are done as fast as they come.
_ORDERED, _ORDERING_KEYS = 0.2, 100


@dataclass(slots=True)
class LoadClients:
    """Threads that enqueue, claim and ack against whatever listens on `port()` now. Everything they see is in `recorder`."""

    port: Callable[[], int]
    seed: int
    producers: int = 2
    workers: int = 3
    batch_max: int = 20
    recorder: HistoryRecorder = field(default_factory=HistoryRecorder)
    unexpected: list[str] = field(default_factory=list)
    refusals: list[tuple[int, str, bool]] = field(default_factory=list)
    # A producer that does not wait keeps at most this number of jobs in the queue: the run must be drained at its end.
    jobs_max: int = 20_000
    _stop_producing: threading.Event = field(default_factory=threading.Event)
    _stop_working: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _producing: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Starts all threads."""
        for number in range(self.producers):
            self._producing.append(self._thread(self._produce, number))
        for number in range(self.workers):
            self._threads.append(self._thread(self._work, number))

    def _thread(self, role: Callable[[int], None], number: int) -> threading.Thread:
        def run() -> None:
            try:
                role(number)
            except Exception as error:  # noqa: BLE001 a dead thread must not pass for a quiet one
                self.unexpected.append(f"{role.__name__} {number}: {error!r}")

        thread = threading.Thread(target=run, name=f"{role.__name__}-{number}")
        thread.start()
        return thread

    def stop_producing(self) -> None:
        """Producers end after their present call."""
        self._stop_producing.set()
        for thread in self._producing:
            thread.join(60)
            assert not thread.is_alive(), "a producer hangs"

    def stop(self) -> None:
        """Everything ends after its present call."""
        self.stop_producing()
        self._stop_working.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a worker hangs"

    def _produce(self, number: int) -> None:
        dice = Random(f"{self.seed} producer {number}")
        made = 0
        with _LoadClient(self, f"producer-{number}", self._stop_producing) as client:
            while not self._stop_producing.is_set() and made < self.jobs_max // self.producers:
                size = dice.randint(1, self.batch_max)
                bodies = [
                    f"{self.seed}-{number}-{made + offset}-{'x' * dice.randint(0, 200)}" for offset in range(size)
                ]
                made += size
                keys = [f"key {dice.randrange(_ORDERING_KEYS)}" if dice.random() < _ORDERED else None for _ in bodies]
                if client.connect():
                    call = self.recorder.call("enqueue", bodies=bodies, ordering_keys=keys)
                    descriptors = client.ask(
                        WireClient.enqueue,
                        QUEUE,
                        bodies,
                        claim_timeout_ms=CLAIM_TIMEOUT_MS,
                        ordering_keys=keys,
                    )
                    if descriptors is not None:
                        self.recorder.answer(call, descriptors=descriptors)

    def _work(self, number: int) -> None:
        dice = Random(f"{self.seed} worker {number}")
        name = f"worker-{number}"
        with _LoadClient(self, name, self._stop_working) as client:
            while not self._stop_working.is_set():
                if client.connect():
                    call = self.recorder.call("claim", worker=name, timeout_ms=CLAIM_TIMEOUT_MS)
                    jobs = client.ask(WireClient.claim, QUEUE, dice.randint(1, self.batch_max), wait_ms=200)
                    if jobs:
                        self.recorder.answer(call, jobs=[[job.descriptor, job.token, job.body] for job in jobs])
                        self._finish(dice, client, jobs)

    def _finish(self, dice: Random, client: _LoadClient, jobs: list[Job]) -> None:
        """Most succeed, some fail, some are forgotten (their claims time out), and the answer may get lost."""
        kept = [job for job in jobs if dice.random() > 0.02]
        acks = sorted(((job.descriptor, job.token, dice.random() > 0.05) for job in kept), key=lambda ack: not ack[2])
        if not acks or not client.connect():
            return
        call = self.recorder.call("ack", acks=acks)
        outcomes = client.ask(WireClient.ack, QUEUE, acks)
        if outcomes is not None:
            assert [each.descriptor for each in outcomes] == [ack[0] for ack in acks], "outcomes out of order"
            self.recorder.answer(call, outcomes=[each.outcome for each in outcomes])


class _LoadClient:
    """One client's connection, made anew after each break."""

    def __init__(self, clients: LoadClients, source: str, stop: threading.Event) -> None:
        self._clients = clients
        self._source = source
        self._stop = stop
        self._client: WireClient | None = None

    def __enter__(self) -> _LoadClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def connect(self) -> bool:
        """Waits for the server to be there; false once stopped."""
        while self._client is None and not self._stop.is_set():
            try:
                self._client = WireClient(self._clients.port(), self._source)
            except GONE:
                self._stop.wait(_RECONNECT_SECONDS)
        return self._client is not None

    def ask(self, call: Callable[Concatenate[WireClient, P], T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer, or None where there was none or an error."""
        assert self._client is not None
        try:
            return call(self._client, *args, **kwargs)
        except GONE as error:
            refusal = refusal_of(error)
            if refusal is None:
                self._drop()
            else:
                self._clients.refusals.append(refusal)
                self._stop.wait(_RECONNECT_SECONDS)
            return None
