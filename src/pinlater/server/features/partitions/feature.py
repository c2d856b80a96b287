"""Puts the automatic number of partitions into a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pinlater.domain.queue import Queue
from pinlater.server.features.feature import Feature
from pinlater.server.features.partitions.auto_partitions import AutoPartitions
from pinlater.server.front.operations import Forwarded
from pinlater.server.maintenance.runner import Periodic
from pinlater.server.operations.service import Service

_LOOK_MS = 1_000


def _add(service: Service) -> None:
    auto = AutoPartitions(service)
    service.put(auto)
    if not all(shard.trusted for shard in service.shards):
        service.periodic.append(Periodic("partitions", _LOOK_MS, auto.look))
    _show(service)


def _show(service: Service) -> None:
    """Adds gauges of the queues that have several partitions, or were given a number by an operator."""

    def of_queues(read: Callable[[Queue], float]) -> Callable[[], Mapping[str, float]]:
        def read_all() -> Mapping[str, float]:
            queues = service.queue_cache.queues.values() if len(service.shards) > 1 else ()
            return {
                queue.name: read(queue)
                for queue in queues
                if queue.config.partitions is not None or queue.auto_partitions > 1
            }

        return read_all

    service.metrics.labelled_gauge(
        "queue-partitions-",
        of_queues(lambda queue: queue.partitions.number),
        prometheus="pinlater_queue_partitions",
        label="queue",
        help="How many partitions a queue is to have; absent for one partition that no operator has set",
        join="max",
    )
    service.metrics.labelled_gauge(
        "queue-partitions-automatic-",
        of_queues(lambda queue: queue.partitions.automatic),
        prometheus="pinlater_queue_partitions_automatic",
        label="queue",
        help="1 where the servers chose that number, 0 where an operator did",
        join="max",
    )
    service.metrics.labelled_gauge(
        "queue-partitions-since-",
        of_queues(lambda queue: (queue.partitions.since_ms or 0) / 1000),
        prometheus="pinlater_queue_partitions_since_seconds",
        label="queue",
        help="When the servers chose it, or an operator last changed the settings of the queue, in Unix time",
        join="max",
    )


FEATURE = Feature((), _add, Forwarded(AutoPartitions))
