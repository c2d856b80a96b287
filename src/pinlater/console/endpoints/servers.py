"""The servers behind the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pinlater.console.endpoint import ApiCall, endpoint
from pinlater.console.endpoints.fields import AnswerShape, Nothing, PartitionNumberItem, doc
from pinlater.console.endpoints.forms import like


class CallerItem(AnswerShape, frozen=True, kw_only=True):
    """What the servers let the caller do."""

    token_name: Annotated[str, doc("Empty without a token.")]
    roles: Annotated[Sequence[str], doc("The roles of the token, without those that they include.")]
    queues: Annotated[Sequence[str], doc("Patterns; `*` matches any text.")]
    expires_at_ms: int | None
    speaks_for_others: Annotated[bool, doc("The audit names the user that the token speaks for.")]


class ServerInfoAnswer(AnswerShape, frozen=True, kw_only=True):
    """The server that answered, with its bounds."""

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
    access: str
    caller: Annotated[CallerItem | None, doc("null without access control.")]


class WaitingItem(AnswerShape, frozen=True, kw_only=True):
    """Long polls of one caller on one queue, waiting on the server that answered."""

    queue: str
    source: str
    number: int


class WaitingAnswer(AnswerShape, frozen=True, kw_only=True):
    """The callers that wait for jobs."""

    waiting: Sequence[WaitingItem]


class ClusterServerItem(AnswerShape, frozen=True, kw_only=True):
    """A server of the shards, as the server that answered knows it."""

    address: str
    name: str
    slots: Annotated[Mapping[str, int], doc("The slot number by shard.")]
    answers: Annotated[bool, doc("It is the server that answered.")]
    heard: bool
    heard_ms: Annotated[int | None, doc("How long ago it was last heard from; null if never.")]
    usable: bool
    unanswered_calls: int
    items_sent: int
    items_taken: int
    version: Annotated[str | None, doc("As the server last reported, like the next three fields; null if it has not.")]
    started_at_ms: int | None
    connections: Annotated[int | None, doc("Connections of clients.")]
    loop_lag_ms: Annotated[int | None, doc("The longest delay of its event loop in this minute and the last.")]


class ShardLaneItem(AnswerShape, frozen=True, kw_only=True):
    """Calls of one kind from the server that answered to a shard."""

    kind: Annotated[str, doc("insert, claim, finish, extend, checkpoint or release.")]
    waiting: Annotated[int, doc("Requests waiting for the next call.")]
    running: Annotated[int, doc("Requests in the current call.")]
    running_ms: Annotated[int | None, doc("How long the current call has taken so far; null if there is none.")]
    calls: Annotated[int, doc("Calls that ended in the last minute.")]
    requests: Annotated[int, doc("Requests in these calls.")]
    mean_ms: Annotated[float | None, doc("The average duration of these calls; null without calls.")]
    slowest_ms: Annotated[float | None, doc("The average in the slowest five seconds.")]


class ShardJobsItem(AnswerShape, frozen=True, kw_only=True):
    """Jobs of a shard by state."""

    at_ms: Annotated[int, doc("When they were counted.")]
    due: int
    scheduled: int
    in_progress: int
    succeeded: int
    failed: int
    oldest_due_at_ms: Annotated[int | None, doc("When the oldest due job became due; null if none is due.")]


class ShardSizeItem(AnswerShape, frozen=True, kw_only=True):
    """The space that a store takes. null: the store does not report it."""

    used_bytes: Annotated[
        int | None, doc("SQLite: the file. MySQL: data and indexes. Redis: all memory of its server.")
    ]
    log_bytes: Annotated[int | None, doc("SQLite: the write-ahead log, in addition.")]
    limit_bytes: Annotated[int | None, doc("Redis: its maxmemory.")]
    at_ms: Annotated[int | None, doc("When the store reported it.")]
    late: Annotated[bool, doc("The store did not answer in time when it was last asked.")]


class ShardDrainItem(AnswerShape, frozen=True, kw_only=True):
    """The progress of a shard that drains, because it takes no enqueues."""

    since_ms: Annotated[int, doc("When the server that answered learned of it.")]
    leaving: Annotated[bool, doc("The shard has been removed from the shard map, and disappears once it is empty.")]
    live_at_first: Annotated[int | None, doc("Jobs that were waiting or running at the first count since then.")]
    jobs_per_second: Annotated[
        float | None, doc("How fast their number falls, over at most the last ten minutes; below 0 while it grows.")
    ]
    empty_at_ms: Annotated[int | None, doc("When none will be left at this rate.")]


class ShardMemoryItem(AnswerShape, frozen=True, kw_only=True):
    """Due jobs that the server that answered keeps in memory, to hand them out without a search; none on Redis and SQLite."""

    jobs: int
    size_bytes: Annotated[int, doc("The memory that they take in the server.")]
    claims: Annotated[
        int,
        doc("Claims since the start of the server that were answered from memory: with jobs, or because none was due."),
    ]
    stale_claims: Annotated[
        int, doc("Claims from memory that had to search after all, because a job was gone or locked.")
    ]


class ShardDetailsItem(AnswerShape, frozen=True, kw_only=True):
    """The state of a shard, as the server that answered knows it."""

    kind: str
    address: Annotated[str, doc("The address of its database or file, without a password; empty if there is none.")]
    takes_enqueues: bool
    since_ms: Annotated[int, doc("When the server started or stopped using it.")]
    failure: Annotated[
        str, doc("Why a call or a probe last failed; empty if none has, and for tokens without the role operate.")
    ]
    failure_kind: Annotated[str, doc("timeout, refused, connection or internal; empty if no call or probe has failed.")]
    failed_at_ms: int | None
    probing: Annotated[bool, doc("The shard is out of use, and is probed repeatedly.")]
    stalled: Annotated[bool, doc("A call is taking too long right now.")]
    full: Annotated[
        str,
        doc(
            "Why the shard refuses enqueues as full; only `full` for tokens without the role operate; empty if it does not."
        ),
    ]
    jobs: Annotated[ShardJobsItem | None, doc("null until they have been counted.")]
    size: ShardSizeItem
    drain: Annotated[ShardDrainItem | None, doc("null if the shard takes enqueues.")]
    lanes: Sequence[ShardLaneItem]
    memory: Annotated[ShardMemoryItem | None, doc("null if the store has none.")]


class ClusterShardItem(AnswerShape, frozen=True, kw_only=True):
    """A shard with the owners of its slices."""

    name: str
    in_reach: bool
    version: Annotated[int, doc("Increases with each change of owners.")]
    owners: Annotated[Sequence[str], doc("The address of the owner of each slice; empty for none.")]
    misplaced: Annotated[Sequence[int], doc("Slices that are about to get another owner.")]
    details: Annotated[ShardDetailsItem | None, doc("null from older servers.")]


class ForwardedItem(AnswerShape, frozen=True, kw_only=True):
    """Calls of one kind between the server that answered and others since its start."""

    kind: str
    calls_sent: int
    items_sent: int
    calls_taken: int
    items_taken: int


class FrontProcessItem(AnswerShape, frozen=True, kw_only=True):
    """A front process of the server that answered."""

    number: int
    calls_taken: Annotated[int, doc("Calls that it has taken since it connected.")]
    calls_under_way: int
    waiting_calls: Annotated[int, doc("Those of the calls under way that wait: long polls and searches.")]
    untaken_bytes: Annotated[int, doc("Bytes of answers that it has not read.")]


class ClusterAnswer(AnswerShape, frozen=True, kw_only=True):
    """What the server that answered knows of the servers of its shards."""

    address: str
    servers: Sequence[ClusterServerItem]
    shards: Sequence[ClusterShardItem]
    forwarded: Sequence[ForwardedItem]
    moves: int
    answers_lost: int
    incomplete: bool
    front_processes: Sequence[FrontProcessItem]
    partitions: Annotated[
        Mapping[str, PartitionNumberItem],
        doc("Queues with several partitions; the 200 with the most if there are more."),
    ]
    coordinator_trouble: Annotated[
        str, doc("Why the owners of queues cannot be changed now, and since when; empty if they can.")
    ]


@endpoint("GET", "/v1/server", calls="server_info")
async def get_server(call: ApiCall[Nothing, Nothing]) -> ServerInfoAnswer:
    """Returns version, features, clock and bounds of the server that answers, and with access control the rights of the caller."""
    return like(ServerInfoAnswer, await call.client.server_info())


@endpoint("GET", "/v1/cluster", calls="cluster")
async def get_cluster(call: ApiCall[Nothing, Nothing]) -> ClusterAnswer:
    """Returns the servers of the shards, how each shard is, and the owners of the slices, as the server that answers knows them.

    It reads no jobs, and asks each store at most twice a minute.
    """
    status = await call.client.cluster()
    servers = [
        like(
            ClusterServerItem,
            server,
            version=server.facts.version or None,
            started_at_ms=server.facts.started_at_ms,
            connections=server.facts.connections,
            loop_lag_ms=server.facts.loop_lag_ms,
        )
        for server in status.servers
    ]
    return like(ClusterAnswer, status, servers=servers)


@endpoint("GET", "/v1/waiting-dequeues", calls="waiting_dequeues")
async def get_waiting_dequeues(call: ApiCall[Nothing, Nothing]) -> WaitingAnswer:
    """Returns the callers that wait for jobs on the server that answers, by queue and source."""
    return WaitingAnswer(waiting=[like(WaitingItem, waiting) for waiting in await call.client.waiting_dequeues()])
