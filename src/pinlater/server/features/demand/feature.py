"""Puts the demand for job slots into a server."""

from __future__ import annotations

from pinlater.server.features.demand.demand import Demand
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service
from pinlater.server.telemetry.catalogue import SLOTS_WANTED

_LOOK_MS = 1_000


def _add(service: Service) -> None:
    demand = Demand(service)
    service.put(demand)
    service.periodic.append(Periodic("demand", _LOOK_MS, demand.look))
    service.metrics.labelled_gauge(
        SLOTS_WANTED.ostrich,
        demand.slots,
        prometheus=SLOTS_WANTED.prometheus,
        label="queue",
        help=SLOTS_WANTED.help,
        join="max",
    )


FEATURE = Feature((), _add, Forwarded(Demand))
