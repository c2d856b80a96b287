"""What a program asks of the public client: a call of each method with all that it can say, and one with as little as possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pinlater.client import (
    Ack,
    AckBatch,
    AsyncClient,
    BulkAction,
    BulkOrder,
    Checkpoint,
    Claim,
    Job,
    JobFilter,
    JobState,
    QueueConfig,
    UniqueKey,
    UniqueScope,
    WorkerInfo,
    WorkingProcess,
)

NOW_MS = 1_767_225_600_000
JOB = "mail:s1:p1:132271570944000000"
RUN = "0123456789abcdef"
PROCESS = WorkingProcess(7, WorkerInfo("python", "1.2", "höst", 2**40, 16, 3, NOW_MS))
FULL_JOB = Job(
    b"\x00\xff body",
    3,
    NOW_MS,
    7,
    "grün",
    {"typ": "ü 😀"},
    UniqueKey("order-ß", UniqueScope.TIME, 60_000),
    30_000,
    NOW_MS + 10**9,
)
FULL_ACK = Ack(JOB, False, "token", "späť", 5_000, True, "TypeError", "größe")
FULL_CHECKPOINT = Checkpoint(JOB, "token", b"\xff half", True, NOW_MS, 9, "halb ")
FULL_FILTER = JobFilter(JobState.FAILED, 2, "a.*b", frozenset({"send"}), {"ü": "1"}, "größe", 3, 1, 2**40, RUN, True)
FULL_ORDER = BulkOrder("mail", BulkAction.RETRY, FULL_FILTER, 2, 2.5, True, None, 2**40)
Ask = Callable[[AsyncClient], Awaitable[Any]]


class ClientCall(NamedTuple):
    """A call of the client, and the method of the service that it makes."""

    method: str
    note: str
    ask: Ask


def _short_and_full(method: str, short: Ask, full: Ask) -> Sequence[ClientCall]:
    return ClientCall(method, "as little as possible", short), ClientCall(method, "all that it can say", full)


def _only(method: str, ask: Ask) -> Sequence[ClientCall]:
    return (ClientCall(method, "", ask),)


CALLS: Sequence[ClientCall] = (
    *_only("createQueue", lambda to: to.create_queue("mail")),
    *_only("deleteQueue", lambda to: to.delete_queue("mail", "opén sesame")),
    *_short_and_full(
        "enqueueJobs",
        lambda to: to.enqueue("mail", [b"1"], request_key="k"),
        lambda to: to.enqueue("mail", [FULL_JOB, Job(b"")], request_key="k", repeat=True),
    ),
    *_short_and_full(
        "dequeueJobs",
        lambda to: to.dequeue("mail"),
        lambda to: to.dequeue(
            "mail",
            5,
            wait_ms=1,
            acks=AckBatch("audio", [Ack(JOB), FULL_ACK], True),
            dry_run=True,
            coverage=0.5,
            process=PROCESS,
        ),
    ),
    *_short_and_full(
        "ackDequeuedJobs",
        lambda to: to.ack_plain("mail", []),
        lambda to: to.ack_plain("mail", [Ack(JOB), FULL_ACK]),
    ),
    *_short_and_full(
        "ackJobs",
        lambda to: to.ack("mail", [Ack(JOB)]),
        lambda to: to.ack("mail", [Ack(JOB), FULL_ACK], per_item_errors=True),
    ),
    *_short_and_full(
        "checkpointJobs",
        lambda to: to.checkpoint_plain("mail", [Checkpoint(JOB)]),
        lambda to: to.checkpoint_plain("mail", [FULL_CHECKPOINT]),
    ),
    *_short_and_full(
        "checkpointJobsFenced",
        lambda to: to.checkpoint("mail", [Checkpoint(JOB)]),
        lambda to: to.checkpoint("mail", [FULL_CHECKPOINT], per_item_errors=True),
    ),
    *_short_and_full(
        "heartbeatClaims",
        lambda to: to.heartbeat("mail", [Claim(JOB, "token")]),
        lambda to: to.heartbeat("mail", [Claim(JOB, "token")], per_item_errors=True, process=PROCESS),
    ),
    *_short_and_full(
        "releaseJobs",
        lambda to: to.release("mail", [Claim(JOB, "token")]),
        lambda to: to.release("mail", [Claim(JOB, "token")], delay_ms=3_000, per_item_errors=True),
    ),
    *_only("cancelJobs", lambda to: to.cancel("mail", [JOB, "x"])),
    *_short_and_full("lookupJobs", lambda to: to.lookup([]), lambda to: to.lookup([JOB], bodies=True)),
    *_short_and_full(
        "findUniqueKey", lambda to: to.find_unique_key("größe"), lambda to: to.find_unique_key("x", "mail", "audio")
    ),
    *_short_and_full(
        "getJobCount",
        lambda to: to.count("mail"),
        lambda to: to.count("mail", JobState.FAILED, priority=2, future=True, regex="a.*b"),
    ),
    *_short_and_full(
        "countJobs",
        lambda to: to.count_jobs("mail"),
        lambda to: to.count_jobs("mail", JobState.FAILED, priority=2, future=True, regex="a.*b"),
    ),
    *_short_and_full(
        "scanJobs",
        lambda to: to.scan("mail"),
        lambda to: to.scan(
            "mail",
            JobState.FAILED,
            priority=2,
            future=True,
            regex="a.*b",
            limit=5,
            continuation="x",
            paged=True,
            bodies=True,
        ),
    ),
    *_short_and_full(
        "retryFailedJobs",
        lambda to: to.retry_failed("mail", priority=1),
        lambda to: to.retry_failed("mail", priority=2, attempts=3, run_after_ms=NOW_MS, limit=5, cancelled=True),
    ),
    *_short_and_full(
        "runJobs",
        lambda to: to.run_jobs("mail", [JOB]),
        lambda to: to.run_jobs("mail", [JOB], attempts=3, run_after_ms=NOW_MS, only_failed=True),
    ),
    *_only("changePriority", lambda to: to.change_priority("mail", [JOB], 3)),
    *_short_and_full(
        "deleteJobs",
        lambda to: to.delete_jobs("mail", JobState.FAILED, priority=1),
        lambda to: to.delete_jobs("mail", JobState.PENDING, priority=2, regex="a.*b", limit=5),
    ),
    *_only("deleteJobsByDescriptor", lambda to: to.delete_jobs_by_descriptor("mail", [JOB])),
    *_only("deleteJobsInState", lambda to: to.delete_jobs_by_descriptor("mail", [JOB], state=JobState.FAILED)),
    *_short_and_full(
        "configureQueue",
        lambda to: to.configure_queue("mail", QueueConfig()),
        lambda to: to.configure_queue("mail", QueueConfig(2.5, 30_000, 1_000, 2_000, 3_000, 4, 5_000, 7)),
    ),
    *_only("getQueueConfig", lambda to: to.queue_config("mail")),
    *_only("getSettingsInForce", lambda to: to.settings_in_force("mail")),
    *_only("getQueueNames", lambda to: to.queue_names()),
    *_only("pauseQueue", lambda to: to.pause_queue("mail")),
    *_only("resumeQueue", lambda to: to.resume_queue("mail")),
    *_only("unblockKey", lambda to: to.unblock_key("mail", "größe")),
    *_short_and_full("getQueueStats", lambda to: to.queue_stats(), lambda to: to.queue_stats("mail", "audio")),
    *_only("getWaitingDequeues", lambda to: to.waiting_dequeues()),
    *_short_and_full("getWorkers", lambda to: to.workers(), lambda to: to.workers(everywhere=True)),
    *_only("getCluster", lambda to: to.cluster()),
    *_only("explainJob", lambda to: to.explain_job("mail", JOB)),
    *_short_and_full(
        "getAudit",
        lambda to: to.audit(),
        lambda to: to.audit(
            queue="mail",
            who="ops",
            operation="pauseQueue",
            since_ms=1,
            until_ms=2**40,
            limit=5,
            continuation="x",
        ),
    ),
    *_short_and_full(
        "getQueueHistory",
        lambda to: to.queue_history("mail", from_ms=NOW_MS),
        lambda to: to.queue_history("mail", "audio", from_ms=1, until_ms=NOW_MS, step_s=60),
    ),
    *_short_and_full("getFailures", lambda to: to.failures(), lambda to: to.failures("mail", "audio")),
    *_short_and_full(
        "muteFailures",
        lambda to: to.mute_failures("mail", RUN),
        lambda to: to.mute_failures("mail", RUN, until_ms=2**40),
    ),
    *_short_and_full(
        "addDeployMark",
        lambda to: to.add_mark("v2 größer", at_ms=NOW_MS),
        lambda to: to.add_mark("v2", at_ms=NOW_MS, queue="mail"),
    ),
    *_short_and_full(
        "startBulkRun",
        lambda to: to.start_bulk_run(BulkOrder("mail", BulkAction.DELETE, JobFilter(JobState.PENDING))),
        lambda to: to.start_bulk_run(FULL_ORDER),
    ),
    *_only("startLimitedBulkRun", lambda to: to.start_bulk_run(FULL_ORDER._replace(max_jobs=9))),
    ClientCall("countJobs", "by a filter", lambda to: to.count_jobs("mail", filter=FULL_FILTER, continuation="1.2")),
    ClientCall("scanJobs", "by a filter", lambda to: to.scan("mail", filter=FULL_FILTER, limit=5)),
    ClientCall("startBulkRun", "an undo", lambda to: to.undo_bulk_run("mail", RUN, jobs_per_second=2.5)),
    *_only("stopBulkRun", lambda to: to.stop_bulk_run("mail", RUN)),
    *_short_and_full("getBulkRuns", lambda to: to.bulk_runs(), lambda to: to.bulk_runs("mail", "audio")),
    *_short_and_full("listBulkRuns", lambda to: to.list_bulk_runs(), lambda to: to.list_bulk_runs("mail", "audio")),
    *_only("getServerInfo", lambda to: to.server_info()),
    *_only("ensureQueue", lambda to: to.ensure_queue("mail")),
    *_only("createOrderedQueue", lambda to: to.create_queue("mail", ordered=True)),
)
