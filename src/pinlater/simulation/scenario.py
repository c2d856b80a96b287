"""The parameters of `pinlater bench simulate`: a cluster, its load and its faults, as plain values. Checks them, and describes what is
wrong."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.domain.durations import duration_ms, duration_text
from pinlater.server.config.settings import Settings
from pinlater.simulation.fault_kinds import FAULT_KINDS, FaultKind, Target

_FAULT = re.compile(r"(?P<name>[a-z-]+)@(?P<at>[^+:]+)(\+(?P<lasts>[^:]+))?(:(?P<number>[0-9]+))?")
FAULT_FORM = "NAME@TIME[+DURATION][:NUMBER]"


class QueueLoad(NamedTuple):
    """A queue and how many jobs a second are enqueued to it, on average."""

    name: str
    rate: float


class PlannedFault(NamedTuple):
    """A fault, in milliseconds after the load begins. `number`: that of the server, shard or worker, from 1; None: the seed chooses."""

    kind: FaultKind
    at_ms: int
    lasts_ms: int
    number: int | None

    @property
    def ends_ms(self) -> int:
        return self.at_ms + self.lasts_ms

    def __str__(self) -> str:
        number = "" if self.number is None else f":{self.number}"
        return f"{self.kind.name}@{duration_text(self.at_ms)}+{duration_text(self.lasts_ms)}{number}"


class Scenario(NamedTuple):
    """Everything that a simulation depends on. `failing`: the share of attempts that fail, from 0 to 1."""

    settings: Settings
    seed: int
    servers: int
    shards: int
    queues: Sequence[QueueLoad]
    batch: int
    workers: int
    concurrency: int
    handler_ms: int
    failing: float
    lasts_ms: int
    store_latency_ms: float
    network_latency_ms: float
    faults: Sequence[PlannedFault]

    @property
    def rate(self) -> float:
        """Jobs a second, of all queues."""
        return sum(queue.rate for queue in self.queues)

    @property
    def claim_timeout_ms(self) -> int:
        return self.settings.jobs.claim_timeout_ms

    def number_of(self, target: Target) -> int:
        """Returns the number of these targets."""
        return {Target.SERVER: self.servers, Target.SHARD: self.shards, Target.WORKER: self.workers}.get(target, 0)


def read_fault(text: str) -> PlannedFault:
    """A fault in the syntax of the command line. Raises ValueError with a text that continues a sentence about the text."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise ValueError(f"is not {FAULT_FORM}, such as kill-server@10m+30s:2")
    kind = FAULT_KINDS.get(match["name"])
    if kind is None:
        raise ValueError(f"names no fault: there are {', '.join(FAULT_KINDS)}")
    at_ms = duration_ms(match["at"])
    lasts_ms = duration_ms(match["lasts"]) if match["lasts"] else kind.lasts_ms
    number = int(match["number"]) if match["number"] else None
    return PlannedFault(kind, at_ms, lasts_ms, number)


def check_fault(scenario: Scenario, fault: PlannedFault) -> None:
    """Raises ValueError, with a text that continues a sentence about the fault, if it does not fit the scenario."""
    if fault.at_ms >= scenario.lasts_ms:
        raise ValueError(f"begins after the simulated time, which ends at {duration_text(scenario.lasts_ms)}")
    if fault.ends_ms > scenario.lasts_ms:
        raise ValueError(f"ends after the simulated time, which ends at {duration_text(scenario.lasts_ms)}")
    if fault.number is not None:
        there = scenario.number_of(fault.kind.target)
        if not there:
            raise ValueError(f"takes no number: {fault.kind.name} has no target")
        if not 1 <= fault.number <= there:
            raise ValueError(f"names {fault.kind.target.value} {fault.number}, and there are {there}")
