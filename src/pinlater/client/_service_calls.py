"""The calls about queues, servers, shards and workers: what is sent, and what is made of the answer.

Pure: every form of the client shares it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import values
from pinlater.client._client_call import ClientCall, nothing, same, value_of, values_of
from pinlater.client._retries import Resend
from pinlater.client._thrift import types
from pinlater.domain.queue import QueueConfig
from pinlater.wire.queue_settings import WIRE_NAMES, config_of


def create_queue(name: str, *, ordered: bool = False) -> ClientCall[None]:
    return ClientCall("createOrderedQueue" if ordered else "createQueue", (name,), nothing, Resend.SAFE)


def ensure_queue(name: str) -> ClientCall[None]:
    return ClientCall("ensureQueue", (name,), nothing, Resend.SAFE)


def delete_queue(name: str, password: str) -> ClientCall[None]:
    return ClientCall("deleteQueue", (name, password), nothing)


def queue_names() -> ClientCall[list[str]]:
    return ClientCall("getQueueNames", (), sorted, Resend.SAFE)


def configure_queue(queue: str, config: QueueConfig) -> ClientCall[None]:
    wire = types.QueueConfig(**config._asdict())
    return ClientCall("configureQueue", (queue, wire), nothing, Resend.SAFE)


def queue_config(queue: str) -> ClientCall[values.QueueInfo]:
    return ClientCall("getQueueConfig", (queue,), lambda answer: _queue_info(queue, answer), Resend.SAFE)


def _queue_info(name: str, config: types.QueueConfig) -> values.QueueInfo:
    """A queue's settings."""
    return values.QueueInfo(name, config_of(config), bool(config.paused), bool(config.ordered))


def settings_in_force(queue: str) -> ClientCall[values.SettingsInForce]:
    return ClientCall("getSettingsInForce", (queue,), _settings_of, Resend.SAFE)


def _settings_of(settings: types.SettingsInForce) -> values.SettingsInForce:
    """What holds for a queue. An origin whose setting this client does not know is passed over."""
    origins = {field: settings.origins[name] for field, name in WIRE_NAMES.items() if name in settings.origins}
    return values.SettingsInForce(config_of(settings.values), origins)


def pause_queue(queue: str) -> ClientCall[None]:
    return ClientCall("pauseQueue", (queue,), nothing, Resend.SAFE)


def resume_queue(queue: str) -> ClientCall[None]:
    return ClientCall("resumeQueue", (queue,), nothing, Resend.SAFE)


def unblock_key(queue: str, ordering_key: str) -> ClientCall[int]:
    return ClientCall("unblockKey", (queue, ordering_key), same, Resend.SAFE)


def queue_stats(names: Sequence[str]) -> ClientCall[list[values.QueueStats]]:
    return ClientCall(
        "getQueueStats", (list(names),), lambda answer: [_queue_stats_of(stats) for stats in answer], Resend.SAFE
    )


def _queue_stats_of(stats: types.QueueStats) -> values.QueueStats:
    """A queue's counts and rates."""
    return value_of(
        values.QueueStats,
        stats,
        counts=tuple(values_of(values.PriorityCounts, stats.counts)),
        rates=value_of(values.Rates, stats.rates),
        partitions=tuple(stats.partitions or ()),
        partition_number=partition_number(stats.partition_number),
    )


def partition_number(found: types.PartitionNumber | None) -> values.PartitionNumber | None:
    return None if found is None else value_of(values.PartitionNumber, found)


def queue_history(
    queues: Sequence[str], from_ms: int, until_ms: int | None, step_s: int | None
) -> ClientCall[values.Histories]:
    request = types.QueueHistoryRequest(list(queues), from_ms, until_ms, step_s)
    return ClientCall("getQueueHistory", (request,), _histories, Resend.SAFE)


def _histories(found: types.QueueHistoryResponse) -> values.Histories:
    """The points and marks of a range."""
    queues = [values.QueueHistory(each.queue, tuple(map(_history_point, each.points))) for each in found.queues]
    marks = tuple(values_of(values.DeployMark, found.marks))
    return value_of(values.Histories, found, queues=tuple(queues), marks=marks)


def _history_point(point: types.HistoryPoint) -> values.HistoryPoint:
    return value_of(
        values.HistoryPoint,
        point,
        running=point.in_progress,
        oldest_ms=point.oldest_waiting_ms,
        waits=_percentiles(point.waits),
        runs=_percentiles(point.runs),
    )


def _percentiles(found: types.Percentiles | None) -> values.SpanPercentiles | None:
    return None if found is None else value_of(values.SpanPercentiles, found)


def failures(queues: Sequence[str]) -> ClientCall[values.FailureGroups]:
    return ClientCall("getFailures", (types.FailuresRequest(list(queues)),), _failure_groups, Resend.SAFE)


def _failure_groups(found: types.FailuresResponse) -> values.FailureGroups:
    """Groups in their order."""
    return values.FailureGroups(tuple(map(_failure_group, found.groups)), bool(found.incomplete))


def _failure_group(group: types.FailureGroup) -> values.FailureGroup:
    return value_of(values.FailureGroup, group, sample=group.sample_descriptor, hours=tuple(group.hours))


def mute_failures(queue: str, group: str, until_ms: int | None) -> ClientCall[None]:
    return ClientCall("muteFailures", (types.FailureMute(queue, group, until_ms),), nothing, Resend.SAFE)


def add_mark(text: str, at_ms: int, queue: str) -> ClientCall[None]:
    mark = types.DeployMark(at_ms, text, queue or None)
    return ClientCall("addDeployMark", (mark,), nothing, Resend.SAFE)


def server_info(made_for: str = "") -> ClientCall[values.ServerInfo]:
    return ClientCall("getServerInfo", (), _server_info, Resend.SAFE, made_for=made_for)


def _server_info(info: types.ServerInfo) -> values.ServerInfo:
    """What a server says of itself."""
    caller = None if info.caller is None else _rights(info.caller)
    return value_of(values.ServerInfo, info, features=tuple(info.features), server_id="", caller=caller)


def _rights(caller: types.CallerRights) -> values.CallerRights:
    lists = {"roles": tuple(caller.roles), "queues": tuple(caller.queues)}
    return value_of(values.CallerRights, caller, token_name=caller.token_name or "", **lists)


def queue_owners() -> ClientCall[types.QueueOwners]:
    return ClientCall("getQueueOwners", (), same, Resend.SAFE)


def cluster() -> ClientCall[values.ClusterStatus]:
    return ClientCall("getCluster", (), _cluster_status, Resend.SAFE)


def _cluster_status(status: types.ClusterStatus) -> values.ClusterStatus:
    """Servers and shards, with the addresses of owners."""
    addresses = [server.address for server in status.servers]
    shards = [
        value_of(
            values.ClusterShard,
            shard,
            owners=[addresses[index] if 0 <= index < len(addresses) else "" for index in shard.owners],
            details=None if shard.details is None else _shard_details(shard.details),
        )
        for shard in status.shards
    ]
    return value_of(
        values.ClusterStatus,
        status,
        servers=[
            value_of(values.ClusterServer, server, facts=value_of(values.ServerFacts, server))
            for server in status.servers
        ],
        shards=shards,
        forwarded=values_of(values.ForwardedCalls, status.forwarded),
        front_processes=tuple(values_of(values.FrontProcess, status.front_processes)),
        partitions={queue: value_of(values.PartitionNumber, each) for queue, each in (status.partitions or {}).items()},
    )


def _shard_details(shard: types.ShardDetails) -> values.ShardDetails:
    memory = shard.memory
    return value_of(
        values.ShardDetails,
        shard,
        address=shard.address or "",
        jobs=None if shard.jobs is None else value_of(values.ShardJobs, shard.jobs),
        size=value_of(values.ShardSize, shard.size),
        drain=None if shard.drain is None else value_of(values.ShardDrain, shard.drain),
        lanes=values_of(values.ShardLane, shard.lanes),
        memory=None if memory is None else value_of(values.ShardMemory, memory, size_bytes=memory.bytes),
    )


def workers(*, everywhere: bool) -> ClientCall[list[values.ServerWorkers]]:
    return ClientCall("getWorkers", (everywhere,), _server_workers, Resend.SAFE)


def _server_workers(found: Sequence[types.ServerWorkers]) -> list[values.ServerWorkers]:
    """What servers know of workers."""
    return [
        value_of(
            values.ServerWorkers,
            each,
            workers=[_worker_status(status) for status in each.workers],
            waiting=_waiting_dequeues(each.waiting),
        )
        for each in found
    ]


def _worker_status(status: types.WorkerStatus) -> values.WorkerStatus:
    return value_of(
        values.WorkerStatus,
        status,
        queues=values_of(values.WorkerQueue, status.queues),
        info=None if status.info is None else value_of(values.WorkerInfo, status.info),
        lost=values_of(values.LostClaim, status.lost),
    )


def waiting_dequeues() -> ClientCall[list[values.WaitingDequeues]]:
    return ClientCall("getWaitingDequeues", (), _waiting_dequeues, Resend.SAFE)


def _waiting_dequeues(found: Sequence[types.WaitingDequeues]) -> list[values.WaitingDequeues]:
    """The dequeues that wait, by queue and source."""
    return values_of(values.WaitingDequeues, found)


def audit(wanted: values.AuditFilter) -> ClientCall[values.AuditPage]:
    request = types.AuditRequest(
        wanted.queue or None,
        wanted.who or None,
        wanted.operation or None,
        wanted.since_ms,
        wanted.until_ms,
        wanted.limit,
        wanted.continuation or None,
    )
    return ClientCall("getAudit", (request,), _audit_page, Resend.SAFE)


def _audit_page(page: types.AuditPage) -> values.AuditPage:
    """Entries of the audit."""
    entries = [value_of(values.AuditEntry, each, roles=tuple(each.roles)) for each in page.entries]
    return value_of(values.AuditPage, page, entries=entries)
