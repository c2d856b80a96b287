"""The table of endpoints, which their modules declare. There is no second list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pinlater.console.endpoint import Endpoint
from pinlater.console.endpoints import (
    audit,
    bulk,
    claims,
    failures,
    jobs,
    jobs_change,
    jobs_enqueue,
    queues,
    queues_history,
    search,
    servers,
    workers,
)

_MODULES = (
    jobs_enqueue, claims, jobs, search, jobs_change, queues, queues_history, failures, bulk, servers, audit, workers,
)  # fmt: skip
ENDPOINTS: Sequence[Endpoint[Any, Any, Any]] = [
    one for module in _MODULES for one in vars(module).values() if isinstance(one, Endpoint)
]
