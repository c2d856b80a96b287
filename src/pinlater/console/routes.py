"""The table of endpoints: method, path, function, query, body, answer, and the client's methods behind them. There is no second list."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from types import NoneType
from typing import Any

from pinlater.console import costs
from pinlater.console.endpoint import Content, Endpoint, HeaderParameter
from pinlater.console.endpoints import audit, bulk, claims, failures, jobs, queues, search, servers, workers
from pinlater.console.shapes.audit import AuditAnswer, AuditQuery
from pinlater.console.shapes.bulk import (
    BulkPreviewAnswer,
    BulkPreviewQuery,
    BulkRequest,
    BulkRunItem,
    BulkRunsAnswer,
    BulkRunsQuery,
    StopBulkRequest,
    UndoBulkRequest,
)
from pinlater.console.shapes.claims import (
    AckRequest,
    CheckpointRequest,
    ClaimedJobsAnswer,
    DequeueRequest,
    HeartbeatRequest,
    MovedJobsAnswer,
    ReleaseRequest,
    ResultsAnswer,
)
from pinlater.console.shapes.failures import FailuresAnswer, FailuresQuery, MuteRequest
from pinlater.console.shapes.fields import Nothing
from pinlater.console.shapes.jobs import (
    BodiesQuery,
    ChangedAnswer,
    ChangePriorityRequest,
    CountQuery,
    DeletedAnswer,
    DeleteJobsQuery,
    DescriptorsRequest,
    EnqueueBatchAnswer,
    EnqueueBatchRequest,
    EnqueuedItem,
    EnqueueQuery,
    ExplainAnswer,
    JobCountAnswer,
    JobItem,
    KeyHoldersAnswer,
    LookupAnswer,
    LookupRequest,
    RetryFailedRequest,
    RunNowRequest,
    ScanAnswer,
    ScanQuery,
    UniqueKeyQuery,
)
from pinlater.console.shapes.queues import (
    ChangedSettings,
    CreateQueueRequest,
    HistoriesAnswer,
    HistoriesQuery,
    HistoryAnswer,
    HistoryQuery,
    MarkItem,
    MarkRequest,
    PausedAnswer,
    QueueItem,
    QueuesAnswer,
    SettingsAnswer,
    SettingsValues,
    StatsAnswer,
    StatsItem,
    StatsQuery,
    UnblockedAnswer,
    UnblockRequest,
)
from pinlater.console.shapes.search import SearchAnswer, SearchQuery
from pinlater.console.shapes.servers import ClusterAnswer, ServerInfoAnswer, WaitingAnswer
from pinlater.console.shapes.workers import WorkersAnswer, WorkersQuery

IDEMPOTENCY_KEY = HeaderParameter(
    "Idempotency-Key",
    "The request key. Send a repeat at most 45 s after the first try, with the same content: with moments, not with spans from now.",
)
ADMIN_PASSWORD = HeaderParameter(
    "PinLater-Admin-Password", "The admin password of the server; not needed with a token of the role admin."
)

_QUEUE, _JOBS, _JOB = "/v1/queues/{queue}", "/v1/queues/{queue}/jobs", "/v1/jobs/{descriptor}"
_CREATED, _NO_CONTENT = HTTPStatus.CREATED, HTTPStatus.NO_CONTENT

# ruff: noqa: E501 - a row of the table is a line
# fmt: off
ENDPOINTS: Sequence[Endpoint[Any, Any, Any]] = (
    Endpoint("POST", _JOBS, jobs.enqueue, EnqueueQuery, Content, EnqueuedItem, "enqueue", _CREATED, IDEMPOTENCY_KEY),
    Endpoint("POST", f"{_JOBS}/batch", jobs.enqueue_batch, Nothing, EnqueueBatchRequest, EnqueueBatchAnswer, "enqueue", _CREATED, IDEMPOTENCY_KEY),
    Endpoint("POST", f"{_JOBS}/dequeue", claims.dequeue, Nothing, DequeueRequest, ClaimedJobsAnswer, "dequeue", give_back=claims.give_back),
    Endpoint("POST", f"{_JOBS}/ack", claims.ack_jobs, Nothing, AckRequest, ResultsAnswer, "ack"),
    Endpoint("POST", f"{_JOBS}/heartbeat", claims.heartbeat_jobs, Nothing, HeartbeatRequest, ResultsAnswer, "heartbeat"),
    Endpoint("POST", f"{_JOBS}/checkpoint", claims.checkpoint_jobs, Nothing, CheckpointRequest, ResultsAnswer, "checkpoint"),
    Endpoint("POST", f"{_JOBS}/release", claims.release_jobs, Nothing, ReleaseRequest, ResultsAnswer, "release"),
    Endpoint("GET", _JOB, jobs.get_job, BodiesQuery, Nothing, JobItem, "lookup"),
    Endpoint("GET", f"{_JOB}/explain", jobs.explain_job, Nothing, Nothing, ExplainAnswer, "explain_job"),
    Endpoint("GET", f"{_JOB}/body", jobs.get_job_body, Nothing, Nothing, Content, "lookup"),
    Endpoint("POST", "/v1/jobs/lookup", jobs.lookup_jobs, Nothing, LookupRequest, LookupAnswer, "lookup", cost=costs.lookup),
    Endpoint("GET", "/v1/jobs", jobs.find_unique_key, UniqueKeyQuery, Nothing, KeyHoldersAnswer, "find_unique_key", cost=costs.holders),
    Endpoint("GET", _JOBS, jobs.scan_jobs, ScanQuery, Nothing, ScanAnswer, "scan", cost=costs.scan),
    Endpoint("GET", "/v1/search", search.search_jobs, SearchQuery, Nothing, SearchAnswer, "lookup, queue_stats, find_unique_key, scan", cost=costs.search),
    Endpoint("GET", f"{_JOBS}/count", jobs.count_jobs, CountQuery, Nothing, JobCountAnswer, "count_jobs"),
    Endpoint("POST", f"{_JOBS}/cancel", jobs.cancel_jobs, Nothing, DescriptorsRequest, ResultsAnswer, "cancel"),
    Endpoint("POST", f"{_JOBS}/run-now", jobs.run_jobs_now, Nothing, RunNowRequest, ResultsAnswer, "run_jobs"),
    Endpoint("POST", f"{_JOBS}/change-priority", jobs.change_priority, Nothing, ChangePriorityRequest, MovedJobsAnswer, "change_priority"),
    Endpoint("POST", f"{_JOBS}/retry-failed", jobs.retry_failed_jobs, Nothing, RetryFailedRequest, ChangedAnswer, "retry_failed, count_jobs, scan, run_jobs"),
    Endpoint("DELETE", _JOBS, jobs.delete_jobs, DeleteJobsQuery, Nothing, DeletedAnswer, "delete_jobs, count_jobs, scan, delete_jobs_by_descriptor, start_bulk_run, list_bulk_runs"),
    Endpoint("POST", f"{_JOBS}/delete", jobs.delete_jobs_by_descriptor, Nothing, DescriptorsRequest, JobCountAnswer, "delete_jobs_by_descriptor"),
    Endpoint("GET", "/v1/queues", queues.list_queues, Nothing, Nothing, QueuesAnswer, "queue_names"),
    Endpoint("POST", "/v1/queues", queues.create_queue, Nothing, CreateQueueRequest, QueueItem, "create_queue", _CREATED),
    Endpoint("GET", _QUEUE, queues.get_queue, Nothing, Nothing, QueueItem, "queue_config"),
    Endpoint("DELETE", _QUEUE, queues.delete_queue, Nothing, Nothing, NoneType, "delete_queue", _NO_CONTENT, ADMIN_PASSWORD),
    Endpoint("GET", f"{_QUEUE}/settings", queues.get_settings, Nothing, Nothing, SettingsAnswer, "queue_config, settings_in_force"),
    Endpoint("PUT", f"{_QUEUE}/settings", queues.replace_settings, Nothing, SettingsValues, SettingsAnswer, "configure_queue"),
    Endpoint("PATCH", f"{_QUEUE}/settings", queues.change_settings, Nothing, ChangedSettings, SettingsAnswer, "queue_config, configure_queue"),
    Endpoint("POST", f"{_QUEUE}/pause", queues.pause_queue, Nothing, Nothing, PausedAnswer, "pause_queue"),
    Endpoint("POST", f"{_QUEUE}/resume", queues.resume_queue, Nothing, Nothing, PausedAnswer, "resume_queue"),
    Endpoint("POST", f"{_QUEUE}/unblock", queues.unblock_key, Nothing, UnblockRequest, UnblockedAnswer, "unblock_key"),
    Endpoint("GET", f"{_QUEUE}/stats", queues.get_queue_stats, Nothing, Nothing, StatsItem, "queue_stats"),
    Endpoint("GET", "/v1/stats", queues.get_stats, StatsQuery, Nothing, StatsAnswer, "queue_stats"),
    Endpoint("GET", f"{_QUEUE}/history", queues.get_queue_history, HistoryQuery, Nothing, HistoryAnswer, "queue_history"),
    Endpoint("GET", "/v1/history", queues.get_history, HistoriesQuery, Nothing, HistoriesAnswer, "queue_history"),
    Endpoint("GET", "/v1/failures", failures.get_failures, FailuresQuery, Nothing, FailuresAnswer, "failures, queue_stats", cost=costs.failures),
    Endpoint("POST", f"{_QUEUE}/bulk", bulk.start_bulk_run, Nothing, BulkRequest, BulkRunItem, "start_bulk_run", _CREATED),
    Endpoint("GET", f"{_QUEUE}/bulk/preview", bulk.preview_bulk_run, BulkPreviewQuery, Nothing, BulkPreviewAnswer, "count_jobs, scan", cost=costs.preview),
    Endpoint("POST", f"{_QUEUE}/bulk/stop", bulk.stop_bulk_run, Nothing, StopBulkRequest, BulkRunItem, "stop_bulk_run"),
    Endpoint("POST", f"{_QUEUE}/bulk/undo", bulk.undo_bulk_run, Nothing, UndoBulkRequest, BulkRunItem, "undo_bulk_run", _CREATED),
    Endpoint("GET", "/v1/bulk", bulk.get_bulk_runs, BulkRunsQuery, Nothing, BulkRunsAnswer, "list_bulk_runs"),
    Endpoint("POST", f"{_QUEUE}/failures/mute", failures.mute_failures, Nothing, MuteRequest, NoneType, "mute_failures", _NO_CONTENT),
    Endpoint("POST", "/v1/marks", queues.add_mark, Nothing, MarkRequest, MarkItem, "add_mark", _CREATED),
    Endpoint("GET", "/v1/server", servers.get_server, Nothing, Nothing, ServerInfoAnswer, "server_info"),
    Endpoint("GET", "/v1/cluster", servers.get_cluster, Nothing, Nothing, ClusterAnswer, "cluster"),
    Endpoint("GET", "/v1/audit", audit.get_audit, AuditQuery, Nothing, AuditAnswer, "audit"),
    Endpoint("GET", "/v1/workers", workers.get_workers, WorkersQuery, Nothing, WorkersAnswer, "workers, queue_stats, scan, queue_history", cost=costs.workers),
    Endpoint("GET", "/v1/waiting-dequeues", servers.get_waiting_dequeues, Nothing, Nothing, WaitingAnswer, "waiting_dequeues"),
)
# fmt: on
