"""What each command prints for people, with long names: a line here for every command that prints a table, a block or a text."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from pinlater.cli import output, shard_status, tables
from pinlater.cli.call import CommandReply, ServerCall
from pinlater.cli.cluster_answers import ServerAnswer
from pinlater.cli.commands import audit, bulk, cluster, queue, shards, token
from pinlater.cli.commands.bench import load
from pinlater.cli.commands.bench.simulate import printing
from pinlater.cli.commands.demo import view
from pinlater.cli.commands.job import dequeue, details, failures, filtered, named
from pinlater.cli.commands.job import list as job_list
from pinlater.cli.commands.job.details import NamedJobs
from pinlater.cli.commands.job.named import ChangedJob, Results
from pinlater.cli.commands.server import import_original, migrate, settings
from pinlater.cli.commands.worker import cron
from pinlater.cli.commands.worker import list as worker_list
from pinlater.cli.filter_options import ChosenJobs
from pinlater.cli.load_generator import LoadMode, LoadPlan, Meter
from pinlater.cli.server_settings import StoreOptions
from pinlater.cli.server_views import ServerView
from pinlater.cli.shard_queries import Seen
from pinlater.client import (
    AckResult,
    AsyncClient,
    AuditEntry,
    AuditPage,
    BulkAction,
    BulkOrder,
    BulkRun,
    BulkState,
    ClaimedJob,
    ClusterServer,
    ClusterShard,
    ClusterStatus,
    JobExplanation,
    JobInfo,
    JobState,
    MovedJob,
    Scanned,
    ServerFacts,
    ServerInfo,
    ShardDetails,
    ShardMemory,
)
from pinlater.client.jobs import JobCount
from pinlater.client.queues import FailureGroup, FailureGroups, SettingsInForce
from pinlater.client.values import PartitionNumber, PriorityCounts, QueueInfo, QueueStats
from pinlater.client.waiting import JobsAhead, QueueFacts, ShardFacts
from pinlater.client.workers import JobInHand, KnownWorker, Trouble, WorkersFound
from pinlater.domain.access import Role
from pinlater.domain.job import Attempt, Outcome
from pinlater.domain.job_filter import JobFilter
from pinlater.domain.queue import QueueConfig, QueueCounts, Rates
from pinlater.domain.slices import SLICES
from pinlater.domain.workers import WorkerInfo, WorkerStatus
from pinlater.import_original.copy import CopyCounts
from pinlater.server.access.tokens import Token, change_tokens
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.storage.offline import Look
from pinlater.server.storage.values import Member
from pinlater.simulation.measure import Percentiles, Sample
from pinlater.simulation.report import FaultReport, SimulationReport
from pinlater.simulation.scenario import read_fault
from pinlater.wire.generated.structs import ShardSize as StoredSize
from pinlater.worker import Worker

WORKER = "thumbnails-of-large-pictures-in-zone-b-1431-42"
QUEUE = "thumbnails_of_large_pictures_that_users_upload"
DESCRIPTOR = f"{QUEUE}:s12:p1:250427967576997888"
HOST = "pinlater-7.thumbnails.internal.pictures.example.org:9010"
CLAIM = f"{HOST}:17:{WORKER}:3"
TOKEN = "kRk0w2bVdVxw6rJbL6q0bdqFsQhK2u5mXh0c0uVn"
TEXT = (
    "SMTPRecipientsRefused: the mailbox of a@example.org is full and takes no more messages until the user deletes some"
)
AT_MS = 1_795_000_000_000

WORKER_LOST = Attempt(1, CLAIM, AT_MS, AT_MS + 75_000, "timed_out", "ClaimTimeout", TEXT)
JOB = JobInfo(
    DESCRIPTOR,
    JobState.FAILED,
    3,
    0,
    f"page 3 of 40 {WORKER}",
    AT_MS,
    run_after_ms=AT_MS,
    updated_at_ms=AT_MS,
    claim_descriptor=CLAIM,
    body=b"https://pictures.example.org/originals/2026/11/23/250427967576997888.jpeg",
    headers={"pinlater-task": f"make_{QUEUE}"},
    unique_key=TOKEN,
    error_type="SMTPRecipientsRefused",
    error_text=f'{TEXT}\n  File "/srv/pictures/thumbnails/of/large/pictures/that/users/upload/resize.py", line 7',
    attempts=[WORKER_LOST, WORKER_LOST._replace(number=2)],
    finished_at_ms=AT_MS,
)
CLAIMED = ClaimedJob(DESCRIPTOR, QUEUE, JOB.body or b"", TOKEN, 1, 3, 2)
STATS = QueueStats(
    QUEUE, False, [PriorityCounts(1, 120_000, 30, 4_000, 40_021_000, 700)], 75_000, Rates(1234.5, 0, 1230.0, 3.5), 12
)
AUDITED = AuditEntry(
    "1",
    AT_MS,
    "admin password",
    (Role.OPERATE.value, Role.ADMIN.value),
    "console",
    "10.0.0.1",
    "setQueueConfig",
    QUEUE,
    f'{{"max_jobs_per_second": 50.0, "reason": "{TEXT}"}}',
    12_000,
    "failed",
    TEXT,
    HOST,
)
FAILED = FailureGroup(
    QUEUE,
    "0123456789abcdef",
    f"make_{QUEUE}",
    "SMTPRecipientsRefused",
    TEXT,
    40_021_000,
    AT_MS,
    AT_MS,
    DESCRIPTOR,
    [12_000],
)
BULK_RUN = BulkRun(
    "0123456789abcdef",
    BulkOrder(QUEUE, BulkAction.DELETE, JobFilter(JobState.FAILED)),
    WORKER,
    AT_MS,
    BulkState.DONE,
    40_021_000,
    40_000_000,
    AT_MS,
    AT_MS,
    TEXT,
    AT_MS,
    40_021_000,
    40_000_000,
    100,
)
RUNNING = BULK_RUN._replace(state=BulkState.RUNNING, ended_ms=None, percent=42, left_ms=180_000)
UNDO = BulkOrder(QUEUE, BulkAction.RESTORE, JobFilter(JobState.FAILED), undoes=BULK_RUN.id)
IN_HAND = JobInHand(DESCRIPTOR, QUEUE, WORKER, 725_000, -75_000)
WORKERS = WorkersFound(
    [
        KnownWorker(
            WORKER,
            Trouble.SILENT,
            [
                "Not heard for 1m 15s; it still holds 3 jobs, whose claims time out within 1m 30s",
                "4 claims timed out in the last 10 minutes",
            ],
            [WorkerStatus(WORKER, 7, 75_000, info=WorkerInfo("python", "1.0.0", HOST, 1431, 16, 3, AT_MS))],
            75_000,
            [QUEUE, "emails"],
            {},
            {QUEUE: 3},
            IN_HAND,
            IN_HAND,
            40_021_000,
            700,
            12,
        ),
        KnownWorker(
            "web-1",
            Trouble.NONE,
            (),
            [WorkerStatus("web-1", 0, 850)],
            850,
            ["emails"],
            {"emails": 1},
            {},
            None,
            None,
            0,
            0,
            0,
        ),
    ]
)
RESULTS = [
    ChangedJob(result)
    for result in (AckResult(DESCRIPTOR, Outcome.APPLIED), AckResult(DESCRIPTOR, Outcome.APPLIED, WORKER))
]
MOVED = [
    ChangedJob(MovedJob(DESCRIPTOR, Outcome.APPLIED, moved_to))
    for moved_to in (DESCRIPTOR, DESCRIPTOR.replace(":p1:", ":p2:"))
]
OWNERS = [HOST, HOST.replace("7", "8")] * (SLICES // 2)
REMEMBERING = ShardDetails("mysql", HOST, True, AT_MS, memory=ShardMemory(123_456, 33_554_432, 40_021_000, 12_000))
CLUSTER = ClusterStatus(
    HOST,
    [
        ClusterServer(HOST, "pinlater-7", {"12": 1}, answers=True, facts=ServerFacts("0.1.0", AT_MS, 12_345, 850)),
        ClusterServer(OWNERS[1], "pinlater-8", heard=True, heard_ms=120, usable=True, items_sent=123_456_789),
    ],
    [ClusterShard("12", in_reach=True, version=7, owners=OWNERS, details=REMEMBERING)],
    moves=123,
    partitions={QUEUE: PartitionNumber(2, True, AT_MS), "orders": PartitionNumber(16, False)},
)
SHARD = ConfiguredShard("12", "thumbnails_of_large_pictures", f"{HOST}/{QUEUE}")
COUNTS = QueueCounts(QUEUE, PriorityCounts(1, 123_456, succeeded=40_021_000))
LOOK = Look(9, [Member(1, "pinlater-7", HOST, AT_MS, AT_MS)], [COUNTS], size=StoredSize(6_871_947_674))
LIMITS = QueueConfig(max_jobs_per_second=50.0, claim_timeout_ms=90_000, max_backlog=1_000_000)
IN_FORCE = SettingsInForce(LIMITS, {"max_jobs_per_second": "limits file", "claim_timeout_ms": "jobs.claim_timeout_ms"})
INFO = ServerInfo("1.0", [QUEUE, WORKER], "mysql", AT_MS, AT_MS, 10, 2**24, 2**26, 10_000, 50_000, 60_000, "tokens")
REPORT = SimulationReport(
    seed=1_900_000_000,
    enqueued=120_000,
    succeeded=119_000,
    failed=1_000,
    failed_attempts=12_000,
    unfinished=7,
    wait=Percentiles(12, 3_410, 75_000, 725_000),
    enqueue=None,
    backlog_max=Sample(600_000, 12_000),
    faults=[FaultReport(read_fault("kill-server@12m+90s:2"), 30_412, 45_678, 30_412, 3_600_000, 120_000, 725_000)],
    errors={("enqueue", f"ShardConnectionFailed: {TEXT}"): 12, ("dequeue", "ServerUnreachable"): 3},
    broken=[f"job {DESCRIPTOR} was answered, and is not there"],
    jobs_stored=120_000,
    simulated_s=600.0,
)
EXPLAINED = JobExplanation(
    DESCRIPTOR,
    AT_MS + 75_000,
    JOB._replace(state=JobState.PENDING),
    ShardFacts("12"),
    QueueFacts(paused=True, paused_at_ms=AT_MS, paused_by=WORKER, max_jobs_per_second=0.5, running=12),
    JobsAhead(12_000),
)

Print = Callable[[pytest.MonkeyPatch, Path], None]


@dataclass(frozen=True)
class AnsweredCall(ServerCall):
    """A call whose servers have given this answer."""

    given: Any = None

    def ask(self, action: Callable[[AsyncClient], Any]) -> Any:
        return self.given


def answered(answer: object, command: Callable[..., None], *words: object, **options_given: object) -> Print:
    """Runs the command as if its servers had given this answer."""
    return printed(lambda: command(AnsweredCall(given=answer), *words, **options_given))


def printed(command: Callable[..., object], *words: object) -> Print:
    """What that part of a command prints of values."""

    def run(_patch: pytest.MonkeyPatch, _folder: Path) -> None:
        command(*words)

    return run


def _token_list(_: pytest.MonkeyPatch, folder: Path) -> None:
    path = folder / "tokens.json"
    if not path.exists():
        known = [Token(TOKEN, "0" * 64, (Role.PRODUCE, Role.WORK), (f"{QUEUE}*", "mail*"), AT_MS)]
        change_tokens(path, lambda _: known)
    token.list_tokens(CommandReply(), tokens=path)


def _settings(_: pytest.MonkeyPatch, folder: Path) -> None:
    path = folder / "pinlater.toml"
    path.write_text(f'store = "sqlite:{QUEUE}.db"\n')
    settings.settings(CommandReply(), StoreOptions(config=path))


def _shards_list(patch: pytest.MonkeyPatch, _folder: Path) -> None:
    patch.setattr(StoreOptions, "settings", lambda *_, **__: None)
    patch.setattr(shards, "as_json", lambda _: None)  # only a real address has a user
    patch.setattr(shards, "places_of", lambda _: [SHARD, SHARD._replace(name="1", takes_enqueues=False)])
    patch.setattr(shards, "find_lost", lambda _: [SHARD._replace(name="2", takes_enqueues=False, lost=True)])
    shards.list_shards(CommandReply(), StoreOptions())


def _cron(patch: pytest.MonkeyPatch, _folder: Path) -> None:
    worker = Worker(AsyncClient("127.0.0.1:1"))

    @worker.cron("*/15 4-6 * * MON-FRI", queue=QUEUE, name=f"make_{QUEUE}", tz="America/Argentina/Buenos_Aires")
    def make() -> None: ...

    module: Any = ModuleType("crontab_of_the_samples")
    module.worker = worker
    patch.setitem(sys.modules, module.__name__, module)
    cron.cron(CommandReply(), "crontab_of_the_samples:worker", firings=3)


def _demo(patch: pytest.MonkeyPatch, _folder: Path) -> None:
    screen = tables.screen()
    console = Console(
        file=sys.stdout, width=screen.columns, force_terminal=True, no_color=not screen.colour, highlight=False
    )
    shown = view.DemoView(5_000, quiet=False)
    patch.setattr(shown, "_console", console)
    shown.say("server: 127.0.0.1:42017, jobs in a SQLite file, metrics at http://127.0.0.1:42018/metrics")
    shown.finish(view.Figures(5_000, 4_990, 110, 10, 0, 2.75, 1_818), right=True)


BULK_RUNS = [RUNNING, BULK_RUN._replace(detail=""), BULK_RUN._replace(order=UNDO)]
NAMED = NamedJobs([DESCRIPTOR])
SAMPLES: Mapping[str, Print] = {
    "job ack": answered(Results(RESULTS), named.ack, [DESCRIPTOR]),
    "audit": answered(AuditPage([AUDITED, AUDITED._replace(who="ops", detail="")]), audit.audit, [QUEUE]),
    "bulk list": printed(bulk._answer, ServerCall(), BULK_RUNS, None),
    "bulk start": answered(
        (JobCount(2, True), [JOB, JOB]), bulk.start, QUEUE, bulk.BulkActionName.RETRY, ChosenJobs(), dry_run=True
    ),
    "job cancel": answered(Results(RESULTS), named.cancel, [DESCRIPTOR]),
    "cluster status": answered([ServerAnswer(HOST, CLUSTER)], cluster.status, QUEUE),
    "job count": answered(JobCount(120_000), filtered.count, QUEUE, ChosenJobs()),
    "worker cron": _cron,
    "demo": _demo,
    "job dequeue": printed(dequeue.print_jobs, [CLAIMED]),
    "job explain": answered([EXPLAINED, EXPLAINED._replace(job=JOB)], details.explain, NAMED),
    "job failures": answered(
        FailureGroups([FAILED, FAILED._replace(task="", error_type="", pattern="", muted_until_ms=AT_MS)]),
        failures.failures,
        [QUEUE],
    ),
    "server import-original": printed(
        import_original.answer_counts,
        CommandReply(),
        {(QUEUE, 1): CopyCounts(40_021_000, 40_000_000, 21_000, Counter(failed=700))},
        False,
    ),
    "bench load": printed(
        load.answer_summary,
        CommandReply(),
        LoadPlan(LoadMode.ENQUEUE, QUEUE, 1, 1, 1, 100, None, 1),
        Meter(0.0, 1_000, 1_000, ended=1.5),
    ),
    "job show": answered({DESCRIPTOR: JOB}, details.show, NAMED, body=True),
    "server migrate": printed(output.print_text, migrate.lines(f"shard 12 ({HOST})", (8, 9, [f"0009_{QUEUE}"]))),
    "job peek": answered(([CLAIMED, CLAIMED], False), dequeue.peek, QUEUE),
    "queue config": printed(
        queue.answer_config, CommandReply(), QueueInfo(QUEUE, LIMITS._replace(max_jobs_per_second=100.0)), IN_FORCE
    ),
    "queue list": answered([QUEUE], queue.list_queues),
    "queue stats": printed(queue._print_stats, [STATS, STATS._replace(queue="emails")], False),
    "job change-priority": answered(Results(MOVED), named.change_priority, [DESCRIPTOR], priority=1),
    "job run-now": answered(Results(RESULTS), named.run_now, [DESCRIPTOR]),
    "job list": answered(
        (Scanned([JOB, JOB._replace(state=JobState.PENDING)]), False), job_list.list_jobs, ChosenJobs(), [QUEUE]
    ),
    "server settings": _settings,
    "shards list": _shards_list,
    "shards status": printed(
        shard_status.print_status, [Seen(SHARD, LOOK, None), Seen(SHARD, None, TEXT)], ServerView(HOST, "pinlater-7"), 1
    ),
    "bench simulate": printed(printing.print_report, REPORT),
    "bench simulate --list-faults": printed(printing.answer_faults, CommandReply()),
    "token list": _token_list,
    "server version": printed(output.print_fields, INFO._asdict()),
    "worker list": printed(lambda: worker_list._answer(ServerCall(), WORKERS, in_one_line=False)),
}
