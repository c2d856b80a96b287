"""Puts the workers into a server: their registry listens to what callers do about claims."""

from __future__ import annotations

from pinlater.server.features.feature import Feature
from pinlater.server.features.workers.methods import METHODS
from pinlater.server.features.workers.registry import WorkerRegistry
from pinlater.server.features.workers.workers import Workers
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.service import Service


def _add(service: Service) -> None:
    registry = WorkerRegistry(service.clock.monotonic)
    service.hear_claims(registry)
    service.of(Sweeps).lost_claims = registry.timed_out
    service.put(Workers(service, registry))


FEATURE = Feature(METHODS, _add, Forwarded(Workers, looks=("waiting_dequeues", "known_workers")))
