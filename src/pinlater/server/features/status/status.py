"""Reports on a server itself, on the servers and shards that it knows, and on the owners of queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest

from pinlater.domain.servers import DELETES_QUEUES, ServerFacts
from pinlater.server.features.status.cluster_status import put_facts, status_alone
from pinlater.server.features.status.shard_details import ShardReports
from pinlater.server.operations.service import Service
from pinlater.version import __version__
from pinlater.wire.generated.structs import ClusterStatus, FrontProcess, PartitionNumber, QueueOwners, ServerInfo
from pinlater.wire.limits import fit_i32

_QUEUES_MAX = 200  # in `ClusterStatus.partitions`


class Status:
    """Answers for one server.

    `access`, `server_id`: as `ServerInfo` has them; set before the server listens.
    If servers share the shards, `cluster_status` makes the answer to `cluster`, `queue_owners` that to `owners`.
    `front_processes` lists the front processes of this server, if it has any.
    `facts`: makes what others learn about this server.
    """

    def __init__(self, service: Service, shard_reports: ShardReports) -> None:
        shards, identity = service.shards, service.identity
        self.access = ""
        self.server_id = ""
        self.shard_reports = shard_reports
        self.cluster_status: Callable[[], ClusterStatus] = lambda: status_alone(shards, identity.address)
        self.queue_owners: Callable[[], QueueOwners] = lambda: QueueOwners((), ())
        self.front_processes: Callable[[], Sequence[FrontProcess]] = tuple
        self.facts: Callable[[], ServerFacts] = lambda: ServerFacts(__version__, identity.started_at_ms)
        self._service = service

    async def cluster(self) -> ClusterStatus:
        """Returns which servers share the shards, and which of them owns what, as this server knows it."""
        details, status, facts = await self.shard_reports.details(), self.cluster_status(), self.facts()
        for server in status.servers:
            if server.answers:
                put_facts(server, facts)
        for shard in status.shards:
            shard.details = details.get(shard.name)
        status.front_processes = self.front_processes() or None
        status.partitions = self._partitions() or None
        return status

    def _partitions(self) -> dict[str, PartitionNumber]:
        """Queues with several partitions, those with the most first."""
        if len(self._service.shards) == 1:
            return {}
        numbers = {queue.name: queue.partitions for queue in self._service.queue_cache.queues.values()}
        several = [(name, number) for name, number in numbers.items() if number.number > 1]
        most = nsmallest(_QUEUES_MAX, several, key=lambda each: (-each[1].number, each[0]))
        return {name: PartitionNumber(*number) for name, number in most}

    async def owners(self) -> QueueOwners:
        """Returns which servers own queues, for clients that send their calls there."""
        return self.queue_owners()

    async def server_info(self) -> ServerInfo:
        """This server's version, features and limits."""
        service, settings = self._service, self._service.settings
        return ServerInfo(
            __version__,
            (*service.features, DELETES_QUEUES) if service.passwords.configured else service.features,
            next(iter(service.shards)).unguarded.capabilities.kind,
            service.clock.now_ms(),
            service.identity.started_at_ms,
            settings.priority_levels,
            fit_i32(service.body_limit.bytes),
            fit_i32(settings.max_frame_bytes),
            fit_i32(settings.max_jobs_per_request),
            fit_i32(settings.max_descriptors_per_request),
            fit_i32(settings.max_wait_ms),
            self.access or None,
            self.server_id or None,
        )
