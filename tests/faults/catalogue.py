"""All faults, and which of them happen to which store."""

from __future__ import annotations

from tests.faults.bulk import ON_BULK_RUNS
from tests.faults.ensemble_faults import ON_ENSEMBLES
from tests.faults.faults import ANYWHERE, InjectedFault
from tests.faults.map_faults import ON_MAPS
from tests.faults.mysql_faults import ON_MYSQL
from tests.faults.polls import DURING_POLLS
from tests.faults.queues import ON_QUEUES
from tests.faults.redis_faults import ON_REDIS
from tests.faults.server_faults import ON_SERVERS


def faults_of(kind: str) -> dict[str, InjectedFault]:
    """By name, for a name of `stores.STORES`."""
    return {
        fault.name: fault
        for fault in (
            *ANYWHERE,
            *ON_SERVERS,
            *ON_ENSEMBLES,
            *ON_QUEUES,
            *ON_BULK_RUNS,
            *DURING_POLLS,
            *(ON_REDIS if kind == "redis" else ON_MYSQL),
            *ON_MAPS,  # last, as it leaves one more shard
        )
    }
