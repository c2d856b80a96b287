"""Puts bulk runs into a server."""

from __future__ import annotations

from pinlater.server.features.bulk.methods import METHODS
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.server.features.feature import Feature
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service

# How often runs are looked for that no server carries out.
_LOOK_MS = 10_000


def _add(service: Service) -> None:
    runs = BulkRuns(service, service.settings, lambda: service.identity.life)
    service.put(runs)
    service.periodic.append(Periodic("bulk-runs", _LOOK_MS, runs.look))
    service.closing.append(runs.close)


FEATURE = Feature(METHODS, _add, Forwarded(BulkRuns, ("start", "stop"), ("runs", "list_runs")))
