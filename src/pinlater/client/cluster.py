"""The servers and shards of a cluster, as a server tells of them. Plain frozen values.

Times are integer milliseconds since the epoch, durations integer milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pinlater.domain.queue import PartitionNumber
from pinlater.domain.servers import ServerFacts


class ClusterServer(NamedTuple):
    """One server of the shards, as the server that answers knows it. `address`: as it announced itself to the other servers.

    `name`: host and process id, if the shards say it. `slots`: by shard. `heard`: whether it said something within the last moments;
    `heard_ms`: how long ago that was, None if it never did. `usable`: whether the server that answers can send calls to it;
    `unanswered_calls`: of those sent. Items: since the start of the server that answers. `facts`: as it said them last.
    """

    address: str
    name: str = ""
    slots: Mapping[str, int] = {}
    answers: bool = False
    """Whether it is the server that answers."""
    heard: bool = False
    heard_ms: int | None = None
    usable: bool = False
    unanswered_calls: int = 0
    items_sent: int = 0
    items_taken: int = 0
    facts: ServerFacts = ServerFacts()


class ShardLane(NamedTuple):
    """Calls of one kind to a shard, from the server that answers. `waiting`: requests for the next call; `running`: those in the call
    under way, which has taken `running_ms` so far (None: there is no such call).

    Of the last minute: `calls` that ended, the `requests` in them, how long a call took (`mean_ms`), and how long on average in the
    slowest five seconds (`slowest_ms`); None without calls.
    """

    kind: str
    waiting: int = 0
    running: int = 0
    running_ms: int | None = None
    calls: int = 0
    requests: int = 0
    mean_ms: float | None = None
    slowest_ms: float | None = None


class ShardJobs(NamedTuple):
    """Jobs of a shard by state, as counted at `at_ms`. `oldest_due_at_ms`: since when the oldest due job has been due; None if none is."""

    at_ms: int
    due: int = 0
    scheduled: int = 0
    in_progress: int = 0
    succeeded: int = 0
    failed: int = 0
    oldest_due_at_ms: int | None = None

    @property
    def live(self) -> int:
        """Jobs that wait or run."""
        return self.due + self.scheduled + self.in_progress


class ShardSize(NamedTuple):
    """How much space a store takes, in bytes. `log_bytes`: of its write-ahead log, beside that. `limit_bytes`: at which it is full.

    None: the store has no such number. `late`: it did not answer the last question in time, and this is older, or unknown.
    """

    used_bytes: int | None = None
    log_bytes: int | None = None
    limit_bytes: int | None = None
    at_ms: int | None = None
    late: bool = False


class ShardDrain(NamedTuple):
    """A shard that takes no enqueues, as the server that answers has seen it since `since_ms`. `live_at_first`: live jobs at
    the first count.

    `jobs_per_second`: how fast their number falls, over the last ten minutes at most; below 0 while it grows. `empty_at_ms`: when none is
    left if it goes on like that. None: not known, as of an unreachable shard. `leaving`: the shard is taken out of the shard map, and
    goes once it is empty.
    """

    since_ms: int
    leaving: bool = False
    live_at_first: int | None = None
    jobs_per_second: float | None = None
    empty_at_ms: int | None = None


class ShardMemory(NamedTuple):
    """Due jobs that the server that answers remembers, to hand them out without a search, and the `size_bytes` that they take in it.

    Since its start: `claims` of a queue that were answered from memory, with these jobs or because none is due, and `stale_claims`, which
    searched after all, as a job was gone or locked. On Redis and SQLite a server remembers no jobs, only that none is due.
    """

    jobs: int = 0
    size_bytes: int = 0
    claims: int = 0
    stale_claims: int = 0


class ShardDetails(NamedTuple):
    """How a shard is, as the server that answers knows it. `address`: of its database or file, without passwords; '' if unknown.

    `since_ms`: when the server began or ceased to use it. `failure`: why a call to it, or the last probe, failed last, at `failed_at_ms`;
    `failure_kind`: timeout, refused, connection or internal; '' if none failed, or from older servers.
    `probing`: it is out of use, and tried again and again. `stalled`: a call takes too long just now. `full`: why it refuses enqueues.
    `memory`: None if the store has none, and from older servers.
    """

    kind: str
    address: str
    takes_enqueues: bool
    since_ms: int
    failure: str = ""
    failed_at_ms: int | None = None
    probing: bool = False
    stalled: bool = False
    full: str = ""
    jobs: ShardJobs | None = None
    size: ShardSize = ShardSize()
    drain: ShardDrain | None = None
    lanes: Sequence[ShardLane] = ()
    failure_kind: str = ""
    memory: ShardMemory | None = None


class ClusterShard(NamedTuple):
    """One shard. `owners`: the addresses of the servers that own its slices, by slice, '' for none. `version`: of the owners.

    `misplaced`: slices that are about to get another owner. `details`: None from older servers.
    """

    name: str
    in_reach: bool
    version: int
    owners: Sequence[str]
    misplaced: Sequence[int] = ()
    details: ShardDetails | None = None


class ForwardedCalls(NamedTuple):
    """Calls of one kind between the server that answers and others since its start, and the items in them."""

    kind: str
    calls_sent: int = 0
    items_sent: int = 0
    calls_taken: int = 0
    items_taken: int = 0


class FrontProcess(NamedTuple):
    """A front process of the server that answers (`serve --processes` on SQLite), by its number. `calls_taken`: since it connected.

    `calls_under_way` are not answered; `waiting_calls` of them are long polls or searches. `untaken_bytes`: of answers that it has not
    read.
    """

    number: int
    calls_taken: int = 0
    calls_under_way: int = 0
    waiting_calls: int = 0
    untaken_bytes: int = 0


class ClusterStatus(NamedTuple):
    """What the server that answers, `address`, knows of the servers of its shards. A server that shares no shards owns everything.

    `moves`: how often a slice got another owner, as this server has seen since its start. `answers_lost`: requests that it sent to
    other servers, and whose answer did not come. `incomplete`: there are more servers or shards than an answer holds. `partitions`: the
    queues with several, of more than 200 those with the most. `coordinator_trouble`: why nothing can change the owners of queues now, and
    since when; '' if something can.
    """

    address: str
    servers: Sequence[ClusterServer]
    shards: Sequence[ClusterShard]
    forwarded: Sequence[ForwardedCalls] = ()
    moves: int = 0
    answers_lost: int = 0
    incomplete: bool = False
    front_processes: Sequence[FrontProcess] = ()
    partitions: Mapping[str, PartitionNumber] = {}
    coordinator_trouble: str = ""

    @property
    def members(self) -> int:
        """How many servers share the shards. One without an address is starting or stopping."""
        return sum(server.address != "" for server in self.servers)


class CallerRights(NamedTuple):
    """What a server with access control lets the caller do. `token_name`: '' without a token. `roles`: their names, without those that
    they include. `queues`: patterns, in which `*` is any text. `speaks_for_others`: operators see the user that the token speaks for."""

    token_name: str
    roles: Sequence[str]
    queues: Sequence[str]
    expires_at_ms: int | None = None
    speaks_for_others: bool = False


class ServerInfo(NamedTuple):
    """The server's version, features and limits, for a client to read before its first call. `now_ms` is the server's clock.

    `access`: `tokens` with access control; without it `loopback`, or `insecure` if the network reaches the server; '' if it says nothing.
    `server_id`: of this start of this server; '' if clients can't tell it from others.
    `caller`: what the caller may do, from a server with access control; None without it, and from older servers.
    """

    version: str
    features: Sequence[str]
    store_kind: str
    now_ms: int
    started_at_ms: int
    priority_levels: int
    max_body_bytes: int
    max_frame_bytes: int
    max_jobs_per_request: int
    max_descriptors_per_request: int
    max_wait_ms: int
    access: str = ""
    server_id: str = ""
    caller: CallerRights | None = None
