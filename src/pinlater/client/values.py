"""What goes into a client's calls and what comes out: plain frozen values that know no Thrift.

Modules of this package have them by subject (`jobs` gives the units and the meaning of None), and `domain` those that servers have, too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from pinlater.client.jobs import Ack as Ack
from pinlater.client.jobs import AckBatch as AckBatch
from pinlater.client.jobs import AckResult as AckResult
from pinlater.client.jobs import Checkpoint as Checkpoint
from pinlater.client.jobs import Claim as Claim
from pinlater.client.jobs import Enqueued as Enqueued
from pinlater.client.jobs import Job as Job
from pinlater.client.jobs import JobCount as JobCount
from pinlater.client.jobs import JobInfo as JobInfo
from pinlater.client.jobs import KeyHolders as KeyHolders
from pinlater.client.jobs import MovedJob as MovedJob
from pinlater.client.jobs import Scanned as Scanned
from pinlater.domain.job import Attempt as Attempt
from pinlater.domain.job import JobState as JobState
from pinlater.domain.job import Outcome as Outcome
from pinlater.domain.job import UniqueKey as UniqueKey
from pinlater.domain.job import UniqueScope as UniqueScope
from pinlater.domain.queue import PartitionNumber as PartitionNumber
from pinlater.domain.queue import PriorityCounts as PriorityCounts
from pinlater.domain.queue import QueueConfig as QueueConfig
from pinlater.domain.queue import Rates as Rates

if TYPE_CHECKING:
    from pinlater.client.audit import *  # noqa: F403 - all their names are names of this module
    from pinlater.client.bulk import *  # noqa: F403
    from pinlater.client.cluster import *  # noqa: F403
    from pinlater.client.history import *  # noqa: F403
    from pinlater.client.queues import *  # noqa: F403
    from pinlater.client.waiting import *  # noqa: F403
    from pinlater.client.workers import *  # noqa: F403
    from pinlater.domain.bulk import *  # noqa: F403
    from pinlater.domain.job_filter import *  # noqa: F403
    from pinlater.domain.servers import *  # noqa: F403
    from pinlater.domain.workers import *  # noqa: F403

# Loaded when a name of theirs is first asked for: most programs enqueue jobs or run them, and need none.
_RARE = (
    "pinlater.client.audit",
    "pinlater.client.bulk",
    "pinlater.client.cluster",
    "pinlater.client.history",
    "pinlater.client.queues",
    "pinlater.client.waiting",
    "pinlater.client.workers",
    "pinlater.domain.bulk",
    "pinlater.domain.job_filter",
    "pinlater.domain.servers",
    "pinlater.domain.workers",
)
_LOADING = threading.RLock()
# A child that is forked while another thread imports would wait for that thread, which it lacks, when it imports the same module.
os.register_at_fork(before=_LOADING.acquire, after_in_parent=_LOADING.release, after_in_child=_LOADING.release)


class ClaimedJob(NamedTuple):
    """A job in hand. `token` names the claim in acks, heartbeats, checkpoints and releases ('' from servers without them).

    `attempt` counts from 1; 0 if the server didn't say. `body_masked`: as in `JobInfo`; only of a dry run.
    """

    descriptor: str
    queue: str
    body: bytes
    token: str = ""
    attempt: int = 0
    attempts_allowed: int = 0
    attempts_remaining: int = 0
    headers: Mapping[str, str] = {}
    created_at_ms: int | None = None
    claim_deadline_ms: int | None = None
    body_masked: bool = False


class Dequeued(NamedTuple):
    """Jobs in the order to run them, and what became of the acks that rode along."""

    jobs: Sequence[ClaimedJob] = ()
    ack_results: Sequence[AckResult] = ()


class QueueInfo(NamedTuple):
    """A queue's settings as they are kept in the store. `ordered`: all its jobs run one after the other."""

    name: str
    config: QueueConfig
    paused: bool = False
    ordered: bool = False


def __getattr__(name: str) -> Any:
    for home in () if name.startswith("_") else _RARE:
        with _LOADING:
            module = import_module(home)
        if hasattr(module, name):
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
