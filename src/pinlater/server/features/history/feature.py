"""Puts the history into a server: each minute it summarizes the counts of the metrics."""

from __future__ import annotations

from typing import Any

from pinlater.domain.history import MINUTE_MS
from pinlater.server.features.feature import Feature
from pinlater.server.features.history.keeper import HistoryKeeper
from pinlater.server.features.history.queries import HistoryQueries
from pinlater.server.features.history.settings import HistorySettings
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.rates import RateSampler
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.maintenance.sweeps import Sweeps
from pinlater.server.operations.service import Service
from pinlater.server.thrift.administrative import TEXT_MAX, Administrative, Fields
from pinlater.server.thrift.methods.record import ServedMethod, queues_of_request


def _mark_asked(call: Any) -> Fields:
    return {"queue": call.mark.queue or "", "at_ms": call.mark.at_ms, "text": call.mark.text[:TEXT_MAX]}


METHODS = [
    ServedMethod(
        "getQueueHistory",
        handle=lambda service, call: service.of(HistoryQueries).queue_history(call.request),
        queues=queues_of_request,
    ),
    ServedMethod(
        "addDeployMark",
        handle=lambda service, call: service.of(HistoryQueries).add_mark(
            call.mark.text, call.mark.at_ms, call.mark.queue or ""
        ),
        queues=lambda call: (call.mark.queue or "",),  # a mark for all queues, without a name, needs access to all
        administrative=Administrative(_mark_asked),
    ),
]


def _add(service: Service) -> None:
    shards, metrics, clock = service.shards, service.metrics, service.clock
    rates, sweeps, settings = service.of(RateSampler), service.of(Sweeps), service.of(HistorySettings)
    keeper = HistoryKeeper(
        shards,
        metrics,
        lambda: rates.counts,
        clock,
        service.identity.life,
        settings,
        lambda: sweeps.swept_by_others(),
    )
    service.put(HistoryQueries(service))
    service.put(keeper)
    if settings.max_queues > 0:
        service.periodic.append(Periodic("history", MINUTE_MS, keeper.keep, keeper.stop))


FEATURE = Feature(METHODS, _add, Forwarded(HistoryQueries, ("add_mark",), ("queue_history",)))
