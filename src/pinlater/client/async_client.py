"""The asynchronous client: one method for each of the service's, values in and values out.

What a call may raise is in `errors`. A call that no server took goes to the next one. A call whose answer did not come may have
taken effect: it is made again if that is safe, and raises ConnectionLost or DeadlineExceeded if it isn't. Every enqueue carries
a request key, which makes it safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client import _job_calls, _search_calls, _service_calls, values
from pinlater.client._base_async import AsyncClientBase
from pinlater.client._changed_before import ChangedBefore
from pinlater.client._client_call import on_queue
from pinlater.client.errors import UnknownMethod
from pinlater.domain.job import JobState
from pinlater.domain.queue import QueueConfig

ORIGINAL_PRIORITY_LEVELS = 3


class AsyncClient(AsyncClientBase):
    """Talks to PinLater servers. Use as `async with AsyncClient("host:9010") as client:`, or `open` and `close` it.

    `servers`: addresses as a list, or one string with commas, or a server-set file (a `Path`, or `file:PATH`), which is read again
    when it changes; without them the environment's PINLATER_SERVERS, then 127.0.0.1:9010. Each client has an order of its own.
    `enqueue_servers`: servers for enqueues alone, named as `servers` are, such as those with the role `enqueue`; while none of them can
    be used, enqueues go to `servers`. Without them the environment's PINLATER_ENQUEUE_SERVERS, if `servers` are the environment's, too.
    `source` names this caller in claims. `timeout_ms` bounds each call with its retries, on top of its `wait_ms`. If no
    server accepts connections, or the one that does is stopping or reaches no shard that the call needs, a call is tried until then,
    unless `wait_for_servers` is false.
    `retries` is how often a call is made again after any other failure; 0 makes each call once.
    `connections` are shared by all calls but long polls, which have their own.
    `token` is for servers with access control: the text, or a file with it (a `Path`), which is read again when it changes; without it
    the environment's PINLATER_TOKEN, or the file that PINLATER_TOKEN_FILE names. A refusal raises AccessDenied and is not retried.
    `tls` encrypts the connections: True trusts the operating system's authorities, a `Tls` says which, and has the client's own
    certificate. The server's certificate must be for the host that the client connects to. Without it the environment's PINLATER_TLS, and
    the files that PINLATER_TLS_CA_FILE, PINLATER_TLS_CLIENT_CERTIFICATE_FILE and PINLATER_TLS_CLIENT_KEY_FILE name.
    `follow_owners`: whether calls go to the servers that own the queue; None: to those among `servers`; True: also to others of which these
    tell, at the addresses that they announce.
    Without `request_keys` an enqueue whose answer is lost raises, since a resend could double it. `connect` makes connections if
    TCP is not what is wanted, as `pinlater.testing` does.
    """

    # --- queues -----------------------------------------------------------------------------------------------------------
    async def create_queue(self, name: str, *, ordered: bool = False) -> None:
        """Makes the queue; if it exists already nothing happens. `ordered`: its jobs run one after the other, whatever their tasks. Raises
        `InvalidArgument` if it exists and is not ordered."""
        await self._run(_service_calls.create_queue(name, ordered=ordered))

    async def ensure_queue(self, name: str) -> None:
        """Makes the queue of a task, as tasks and workers do by themselves; if it exists already nothing happens.

        Raises QueueNotFound if the server forbids it (the setting `jobs.auto_create`), or if the queue was deleted within the last day.
        """
        await self._run(_service_calls.ensure_queue(name))

    async def delete_queue(self, name: str, password: str) -> None:
        """Removes the queue with all its jobs; needs the server's admin password."""
        await self._run(_service_calls.delete_queue(name, password))

    async def queue_names(self) -> list[str]:
        """All queues, by name."""
        return await self._run(_service_calls.queue_names())

    async def configure_queue(self, queue: str, config: QueueConfig) -> None:
        """Replaces all of the queue's settings; None leaves one to the server."""
        await self._run(_service_calls.configure_queue(queue, config))

    async def queue_config(self, queue: str) -> values.QueueInfo:
        """The queue's settings."""
        return await self._run(_service_calls.queue_config(queue))

    async def settings_in_force(self, queue: str) -> values.SettingsInForce:
        """The queue's settings as they hold on the server that answers, the server's own among them, and where each comes from."""
        return await self._run(_service_calls.settings_in_force(queue))

    async def waiting_dequeues(self) -> list[values.WaitingDequeues]:
        """The dequeues that wait for jobs on the server that answers, by queue and source."""
        return await self._run(_service_calls.waiting_dequeues())

    async def workers(self, *, everywhere: bool = False) -> list[values.ServerWorkers]:
        """The workers that the server which answers heard in the last 15 minutes, and what became of their claims there. With `everywhere`,
        it asks the other servers of its shards, too: one item for each that answered."""
        return await self._run(_service_calls.workers(everywhere=everywhere))

    async def explain_job(self, queue: str, descriptor: str) -> values.JobExplanation:
        """Why a job waits, as the server that answers knows it: `reasons()` of the answer tells it."""
        return await self._run(_search_calls.explain_job(queue, descriptor))

    async def cluster(self) -> values.ClusterStatus:
        """Which servers share the shards, and which of them owns what, as the server that answers knows it."""
        return await self._run(_service_calls.cluster())

    async def audit(
        self,
        *,
        queue: str = "",
        who: str = "",
        operation: str = "",
        since_ms: int | None = None,
        until_ms: int | None = None,
        limit: int = 100,
        continuation: str = "",
    ) -> values.AuditPage:
        """Changes and their callers, newest first, as far as the servers still keep them. `who`: the name of a token.

        A page may have few entries although more follow: its `continuation` gives the next one until it is empty."""
        wanted = values.AuditFilter(queue, who, operation, since_ms, until_ms, limit, continuation)
        return await self._run(_service_calls.audit(wanted))

    async def pause_queue(self, queue: str) -> None:
        """Stops dequeues; enqueues and acks go on."""
        await self._run(_service_calls.pause_queue(queue))

    async def resume_queue(self, queue: str) -> None:
        """Lets dequeues go on."""
        await self._run(_service_calls.resume_queue(queue))

    async def unblock_key(self, queue: str, ordering_key: str) -> int:
        """Has jobs that failed finally no longer stop their ordering key: the next jobs of the key go. Returns how many stopped it."""
        return await self._run(_service_calls.unblock_key(queue, ordering_key))

    async def queue_stats(self, *queues: str) -> list[values.QueueStats]:
        """Counts and rates of these queues; of all without an argument."""
        return await self._run(_service_calls.queue_stats(queues))

    async def queue_history(
        self, *queues: str, from_ms: int, until_ms: int | None = None, step_s: int | None = None
    ) -> values.Histories:
        """What happened in up to a hundred queues, for charts: points and deploy marks of a range of time.

        `until_ms`: now for None. `step_s`: 60, 600 or 3600 seconds; for None the finest that is kept for the range.
        """
        return await self._run(_service_calls.queue_history(queues, from_ms, until_ms, step_s))

    async def failures(self, *queues: str) -> values.FailureGroups:
        """Failed attempts of up to a hundred queues in groups that look alike, those with the most of the last 24 hours first."""
        return await self._run(_service_calls.failures(queues))

    async def start_bulk_run(self, order: values.BulkOrder) -> values.BulkRun:
        """Begins a change of many jobs, which the servers carry out in the background, also over restarts."""
        return await self._run(_search_calls.start_bulk_run(order))

    async def stop_bulk_run(self, queue: str, run_id: str) -> values.BulkRun:
        """Stops it; one that has ended stays as it is."""
        return await self._run(_search_calls.stop_bulk_run(queue, run_id))

    async def undo_bulk_run(self, queue: str, run_id: str, *, jobs_per_second: float | None = None) -> values.BulkRun:
        """Begins to bring back the jobs that a run has deleted, as they were, under their descriptors. Copies are kept for a day."""
        return await self._run(_search_calls.undo_bulk_run(queue, run_id, jobs_per_second))

    async def bulk_runs(self, *queues: str) -> list[values.BulkRun]:
        """The runs of the last 30 days, the newest first: of these queues, or of all."""
        return await self._run(_search_calls.bulk_runs(queues))

    async def list_bulk_runs(self, *queues: str) -> values.BulkRunList:
        """As `bulk_runs`, and says which shards could not be asked."""
        return await self._run(_search_calls.list_bulk_runs(queues))

    async def mute_failures(self, queue: str, group: str, *, until_ms: int | None = None) -> None:
        """Mutes a group of failures: it comes last then, and still counts. At most for 30 days, which is the default; a time that is past
        ends it."""
        await self._run(_service_calls.mute_failures(queue, group, until_ms))

    async def add_mark(self, text: str, *, at_ms: int | None = None, queue: str = "") -> None:
        """Keeps a mark for 30 days, which charts show. `at_ms`: now for None. `queue`: '' for all."""
        await self._run(_service_calls.add_mark(text, self._clock.now_ms() if at_ms is None else at_ms, queue))

    # --- the three hot paths ----------------------------------------------------------------------------------------------
    async def enqueue(
        self, queue: str, jobs: Sequence[values.Job | bytes], *, request_key: str | None = None, repeat: bool = False
    ) -> values.Enqueued:
        """Stores jobs; they are safe when this returns. A bare `bytes` is a job with nothing but a body.

        `request_key` is for callers who make a request again after a restart of their own, within two minutes and with `repeat`;
        other enqueues get a key by themselves.
        """
        return await self._run(self.enqueue_call(queue, jobs, request_key, repeat))

    async def dequeue(
        self,
        queue: str,
        limit: int = 1,
        *,
        wait_ms: int = 0,
        acks: values.AckBatch | None = None,
        dry_run: bool = False,
        coverage: float = 1.0,
        process: values.WorkingProcess | None = None,
    ) -> values.Dequeued:
        """Claims up to `limit` jobs, waiting up to `wait_ms` for one; `acks` are carried out first. `dry_run` only shows jobs. `process`:
        for the list of workers that servers keep.
        """
        call = _job_calls.dequeue(
            queue, limit, wait_ms=wait_ms, acks=acks, dry_run=dry_run, coverage=coverage, process=process
        )
        return await self._run(call)

    async def ack(
        self, queue: str, acks: Sequence[values.Ack], *, per_item_errors: bool = False
    ) -> list[values.AckResult]:
        """Ends attempts; says what became of each, in the order of `acks`.

        One that can't be carried out, since its shard is unreachable, say, makes the call raise, whatever became of the others. With
        `per_item_errors` its result says so instead, if the server knows that; so it is for `checkpoint`, `heartbeat` and `release`.
        """
        return await self._run(_job_calls.acknowledge(queue, acks, per_item_errors=per_item_errors))

    async def ack_plain(self, queue: str, acks: Sequence[values.Ack]) -> None:
        """Ends attempts as an original server knows it, without outcomes."""
        await self._run(_job_calls.acknowledge_plain(queue, acks))

    # --- jobs in hand -----------------------------------------------------------------------------------------------------
    async def checkpoint(
        self, queue: str, items: Sequence[values.Checkpoint], *, per_item_errors: bool = False
    ) -> list[values.AckResult]:
        """Saves progress and renews claims."""
        return await self._run(_job_calls.checkpoint(queue, items, per_item_errors=per_item_errors))

    async def checkpoint_plain(self, queue: str, items: Sequence[values.Checkpoint]) -> None:
        """Saves progress as an original server knows it, without outcomes."""
        await self._run(_job_calls.checkpoint_plain(queue, items))

    async def heartbeat(
        self,
        queue: str,
        claims: Sequence[values.Claim],
        *,
        per_item_errors: bool = False,
        process: values.WorkingProcess | None = None,
    ) -> list[values.AckResult]:
        """Renews claims; `deadline_ms` of a result is the new deadline. `process`: as for `dequeue`."""
        return await self._run(_job_calls.heartbeat(queue, claims, per_item_errors=per_item_errors, process=process))

    async def release(
        self, queue: str, claims: Sequence[values.Claim], *, delay_ms: int = 0, per_item_errors: bool = False
    ) -> list[values.AckResult]:
        """Gives jobs back without spending an attempt."""
        return await self._run(_job_calls.release(queue, claims, delay_ms, per_item_errors=per_item_errors))

    async def cancel(self, queue: str, descriptors: Sequence[str]) -> list[values.AckResult]:
        """Unfinished jobs become FAILED with status `cancelled`."""
        return await self._run(_job_calls.cancel(queue, descriptors))

    # --- looking ----------------------------------------------------------------------------------------------------------
    async def lookup(self, descriptors: Sequence[str], *, bodies: bool = False) -> dict[str, values.JobInfo]:
        """What is known of these jobs; those that don't exist are left out."""
        return await self._run(_search_calls.lookup(descriptors, bodies=bodies))

    async def find_unique_key(self, key: str, *queues: str) -> values.KeyHolders:
        """The jobs that hold a unique key now, in these queues or in all, without bodies: at most 200. Servers look into an index.

        A job whose key is free again, since it has ended or its time is over, is not among them.
        """
        return await self._run(_search_calls.find_unique_key(key, queues))

    async def count(
        self,
        queue: str,
        state: JobState = JobState.PENDING,
        *,
        priority: int | None = None,
        future: bool = False,
        regex: str | None = None,
    ) -> int:
        """How many jobs are in `state`; of the PENDING ones those that are due, or with `future` those that aren't yet."""
        return await self._run(_search_calls.count(queue, values.JobFilter(state, priority, regex), future=future))

    async def count_jobs(
        self,
        queue: str,
        state: JobState = JobState.PENDING,
        *,
        priority: int | None = None,
        future: bool = False,
        regex: str | None = None,
        filter: values.JobFilter | None = None,
        continuation: str = "0",
    ) -> values.JobCount:
        """As `count`, and says if an unreachable shard is not counted. An original server raises UnknownMethod.

        `filter` chooses the jobs, in place of `state`, `priority` and `regex`. A call counts those that fit of a part of the jobs, and the
        next one, with its `continuation`, goes on there until that is "-1". Raises UnknownMethod if the server is too old for the filter.
        """
        if filter is None:
            return await self._run(
                _search_calls.count_jobs(queue, values.JobFilter(state, priority, regex), future=future)
            )
        return await self._run(_search_calls.count_jobs(queue, filter, future=future, continuation=continuation))

    async def scan(
        self,
        queue: str,
        state: JobState = JobState.PENDING,
        *,
        priority: int | None = None,
        future: bool = False,
        regex: str | None = None,
        limit: int = 100,
        continuation: str = "0",
        paged: bool = False,
        bodies: bool = False,
        shard: str | None = None,
        filter: values.JobFilter | None = None,
    ) -> values.Scanned:
        """Jobs in `state`, newest first. With `paged` the answer's continuation goes on where it stopped. `shard`: only jobs on that shard;
        raises UnknownMethod if the server is too old for it.

        `filter` chooses the jobs, in place of `state`, `priority` and `regex`. Such a scan is paged. A call compares a part of the jobs: it
        may answer fewer than `limit`, also none, and a continuation. Raises UnknownMethod if the server is too old for the filter.
        """
        call = _search_calls.scan(
            queue,
            filter or values.JobFilter(state, priority, regex),
            future=future,
            limit=limit,
            continuation=continuation,
            paged=paged or filter is not None,
            bodies=bodies,
            shard=shard,
            in_parts=filter is not None,
        )
        return await self._run(call)

    # --- bulk -------------------------------------------------------------------------------------------------------------
    async def retry_failed(
        self,
        queue: str,
        *,
        priority: int | None = None,
        attempts: int = 1,
        run_after_ms: int | None = None,
        limit: int = 1000,
        cancelled: bool = False,
    ) -> int:
        """Puts failed jobs of one priority, or of all without it, back to PENDING; how many. Calls the server once a priority; an error
        says how many were retried before.

        Cancelled jobs, which are FAILED too, stay as they are unless `cancelled`. An original server retries them in any case.
        """
        with ChangedBefore("retried") as done:
            for level in await self._priorities(priority, on_queue("retry_failed", queue)):
                call = _search_calls.retry_failed(
                    queue,
                    priority=level,
                    attempts=attempts,
                    run_after_ms=run_after_ms,
                    limit=limit - done.jobs,
                    cancelled=cancelled,
                )
                done.jobs += await self._run(call)
                if done.jobs >= limit:
                    break
        return done.jobs

    async def run_jobs(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        attempts: int = 1,
        run_after_ms: int | None = None,
        only_failed: bool = False,
    ) -> list[values.AckResult]:
        """These jobs become due, now unless a time is given: failed ones with `attempts`, and waiting ones unless `only_failed`."""
        call = _job_calls.run_jobs(
            queue, descriptors, attempts=attempts, run_after_ms=run_after_ms, only_failed=only_failed
        )
        return await self._run(call)

    async def change_priority(self, queue: str, descriptors: Sequence[str], priority: int) -> list[values.MovedJob]:
        """Gives these waiting or failed jobs another priority, and with it another descriptor (`moved_to`); the old one names nothing then.

        A repeat is safe. A server from before this method raises `UnknownMethod`.
        """
        return await self._run(_job_calls.change_priority(queue, descriptors, priority))

    async def delete_jobs(
        self, queue: str, state: JobState, *, priority: int | None = None, regex: str | None = None, limit: int = 1000
    ) -> int:
        """Deletes jobs of one state, and of one priority, or of all without it; how many. Calls the server once a priority; an error says
        how many were deleted before."""
        with ChangedBefore("deleted") as done:
            for level in await self._priorities(priority, on_queue("delete_jobs", queue)):
                left = limit - done.jobs
                done.jobs += await self._run(
                    _search_calls.delete_jobs(queue, state, priority=level, regex=regex, limit=left)
                )
                if done.jobs >= limit:
                    break
        return done.jobs

    async def _priorities(self, priority: int | None, made_for: str) -> Sequence[int]:
        """This one, or all that the server has; an original server does not say, and has three unless it is configured otherwise."""
        if priority is not None:
            return [priority]
        try:
            info = await self._run(_service_calls.server_info(made_for))
        except UnknownMethod:
            return range(1, ORIGINAL_PRIORITY_LEVELS + 1)
        return range(1, info.priority_levels + 1)

    async def delete_jobs_by_descriptor(
        self, queue: str, descriptors: Sequence[str], *, state: JobState | None = None
    ) -> int:
        """Deletes these jobs, in whatever state they are, or those that are in `state` at that moment; how many."""
        return await self._run(_job_calls.delete_jobs_by_descriptor(queue, descriptors, state))

    async def server_info(self) -> values.ServerInfo:
        """What the server says of itself. An original server raises UnknownMethod."""
        return await self._run(_service_calls.server_info())
