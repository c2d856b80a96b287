"""Puts the explanation of waiting jobs into a server."""

from __future__ import annotations

from pinlater.server.features.explain.explain import Explain
from pinlater.server.features.explain.methods import METHODS
from pinlater.server.features.feature import Feature
from pinlater.server.features.status.status import Status
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.operations.service import Service


def _add(service: Service) -> None:
    status = service.of(Status)
    service.put(
        Explain(
            service.shards,
            service.queue_cache,
            service.dispatcher,
            service.identity,
            service.metrics,
            service.clock,
            service.of(RateSampler).per_second,
            lambda: status.cluster_status().members,
        )
    )


FEATURE = Feature(METHODS, _add, Forwarded(Explain, looks=("explain",)))
