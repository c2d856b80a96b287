"""The asynchronous client against a server that does what the test says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pinlater.client import (
    AckBatch,
    AsyncClient,
    Job,
    JobFilter,
    JobState,
    Outcome,
    QueueConfig,
    UniqueKey,
    UniqueScope,
    errors,
    values,
)
from pinlater.domain.errors import ErrorCode
from tests import structs as t
from tests.client.fake_server import FakeServer


def refusal(code: int, message: str, **more: Any) -> t.PinLaterException:
    return t.PinLaterException(code, message, **more)


async def test_an_enqueue_sends_every_field_and_gives_descriptors() -> None:
    answer = t.Enqueued(descriptors=["q:s1:p1:1", "q:s1:p2:2"], existing=[1])
    job = Job(
        b"\xff\x00",
        priority=2,
        run_after_ms=5,
        attempts_allowed=7,
        custom_status="s",
        headers={"a": "b"},
        unique=UniqueKey("k", UniqueScope.TIME, 99),
        claim_timeout_ms=3,
        expires_at_ms=4,
    )
    async with FakeServer(enqueueJobs=lambda _: answer) as server, AsyncClient(server.address, source="me") as client:
        enqueued = await client.enqueue("q", [b"bare", job], request_key="r", repeat=True)
    assert enqueued == values.Enqueued(["q:s1:p1:1", "q:s1:p2:2"], (1,))
    (sent,) = server.called("enqueueJobs")
    assert sent.context.source == "me"
    assert (sent.request.queue, sent.request.request_key, sent.request.repeated) == ("q", "r", True)
    bare, full = sent.request.jobs
    assert (bare.body, bare.priority, bare.attempts_allowed) == (b"bare", 1, None)
    assert (full.body, full.priority, full.run_after_ms, full.attempts_allowed) == (b"\xff\x00", 2, 5, 7)
    assert (full.custom_status, full.headers) == ("s", {"a": "b"})
    assert (full.unique_key, full.unique_scope, full.unique_for_ms) == ("k", 2, 99)
    assert (full.claim_timeout_ms, full.expires_at_ms) == (3, 4)


async def test_a_dequeue_gives_jobs_in_the_servers_order_with_their_claims() -> None:
    meta = t.DequeueMetadata(
        attempts_allowed=3, attempts_remaining=2, token="tok", headers={"h": "1"}, claim_deadline_ms=9, attempt=2
    )
    answer = t.DequeueResponse(
        jobs={"q:s1:p1:2": b"two", "q:s1:p1:1": b"one"},
        metadata={"q:s1:p1:1": meta},
        order=["q:s1:p1:2", "q:s1:p1:1"],
    )
    async with FakeServer(dequeueJobs=lambda _: answer) as server, AsyncClient(server.address) as client:
        two, one = (await client.dequeue("q", 5)).jobs
    assert (two.body, two.token, two.queue) == (b"two", "", "q")
    assert (one.token, one.attempt, one.attempts_remaining, one.headers) == ("tok", 2, 2, {"h": "1"})
    assert one.claim_deadline_ms == 9


async def test_jobs_of_an_original_server_come_by_priority_and_age() -> None:
    """Its answer is a map, which has no order."""
    names = ["q:s1:p2:1", "q:s1:p1:9", "q:s1:p1:3"]
    answer = t.DequeueResponse(jobs=dict.fromkeys(names, b""))
    async with FakeServer(dequeueJobs=lambda _: answer) as server, AsyncClient(server.address) as client:
        jobs = (await client.dequeue("q", 5)).jobs
    assert [job.descriptor for job in jobs] == ["q:s1:p1:3", "q:s1:p1:9", "q:s1:p2:1"]


async def test_ack_results_come_in_the_order_of_the_acks() -> None:
    """The wire answers succeeded ones first, then failed ones."""
    acks = [values.Ack("f1", succeeded=False), values.Ack("s1", token="x"), values.Ack("f2", succeeded=False)]

    def outcomes(_: Any) -> list[Any]:
        return [t.AckResult("s1", 0), t.AckResult("f1", 2, "holder", 7), t.AckResult("f2", 3)]

    def dequeued(arguments: Any) -> Any:
        return t.DequeueResponse(ack_outcomes=outcomes(arguments))

    async with (
        FakeServer(ackJobs=outcomes, dequeueJobs=dequeued) as server,
        AsyncClient(server.address) as client,
    ):
        alone = await client.ack("q", acks)
        riding = (await client.dequeue("q", acks=AckBatch("q", acks))).ack_results
    assert alone == riding
    assert [result.outcome for result in alone] == [Outcome.STALE_CLAIM, Outcome.APPLIED, Outcome.NOT_FOUND]
    assert (alone[0].holder, alone[0].held_since_ms, alone[1].applied) == ("holder", 7, True)


@pytest.mark.parametrize(
    ("code", "kind", "side"),
    [
        (413, errors.QueueNotFound, errors.CallerError),
        (410, errors.QueueNameInvalid, errors.CallerError),
        (411, errors.QueueNameTooLong, errors.CallerError),
        (403, errors.PasswordInvalid, errors.CallerError),
        (416, errors.PriorityNotSupported, errors.CallerError),
        (400, errors.ContinuationInvalid, errors.CallerError),
        (429, errors.DequeueRateLimited, errors.WorldError),
        (430, errors.EnqueueRejected, errors.WorldError),
        (501, errors.NoHealthyShards, errors.WorldError),
        (502, errors.ShardConnectionFailed, errors.WorldError),
    ],
)
async def test_a_refusal_is_an_exception_by_code_and_by_fault(
    code: int, kind: type[errors.PinLaterError], side: type[errors.PinLaterError]
) -> None:
    def refuse(_: Any) -> None:
        raise refusal(code, "because")

    async with FakeServer(createQueue=refuse) as server, AsyncClient(server.address, timeout_ms=300) as client:
        with pytest.raises(kind) as caught:
            await client.create_queue("q")
    assert isinstance(caught.value, side)
    assert caught.value.code == ErrorCode(code)
    assert str(caught.value).startswith("because")


@pytest.mark.parametrize(("retryable", "side"), [(False, errors.CallerError), (True, errors.WorldError)])
async def test_code_500_goes_by_what_the_server_says(retryable: bool, side: type[errors.PinLaterError]) -> None:
    def refuse(_: Any) -> None:
        raise refusal(500, "no", detail="BODY_TOO_LARGE", retryable=retryable, retry_after_ms=12)

    async with FakeServer(enqueueJobs=refuse) as server, AsyncClient(server.address) as client:
        with pytest.raises(side) as caught:
            await client.enqueue("q", [b""])
    assert (caught.value.detail, caught.value.retry_after_ms) == ("BODY_TOO_LARGE", 12)


async def test_a_refusal_leaves_the_connection_in_use() -> None:
    def refuse(_: Any) -> None:
        raise refusal(413, "Queue not found: q")

    async with (
        FakeServer(pauseQueue=refuse, dequeueJobs=refuse) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        for _ in range(3):
            with pytest.raises(errors.QueueNotFound):
                await client.pause_queue("q")
            with pytest.raises(errors.QueueNotFound):
                await client.dequeue("q", wait_ms=5)
    assert server.connections == 2


async def test_an_unknown_method_is_said_so() -> None:
    async with FakeServer() as server, AsyncClient(server.address) as client:
        with pytest.raises(errors.UnknownMethod):
            await client.server_info()


async def test_a_call_without_an_answer_ends_at_its_deadline_and_later_calls_work() -> None:
    never = asyncio.Event()
    async with (
        FakeServer(pauseQueue=lambda _: never.wait(), createQueue=lambda _: None) as server,
        AsyncClient(server.address, timeout_ms=50, connections=1) as client,
    ):
        with pytest.raises(errors.DeadlineExceeded):
            await client.pause_queue("q")
        await client.create_queue("q")
        assert server.connections == 2


async def test_a_long_poll_given_up_hangs_up_so_that_the_server_takes_its_jobs_back() -> None:
    async with (
        FakeServer(dequeueJobs=lambda _: asyncio.Event().wait()) as server,
        AsyncClient(server.address) as client,
    ):
        task = asyncio.create_task(client.dequeue("q", wait_ms=60_000))
        while not server.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.close()  # nothing is left to wait for


async def test_closing_ends_calls_on_retired_connections_too() -> None:
    """The pool has replaced such a connection. If it stayed open, the socket would outlive the client's event loop."""
    async with FakeServer(getQueueNames=lambda _: asyncio.Event().wait(), createQueue=lambda _: None) as server:
        client = AsyncClient(server.address, connections=1, timeout_ms=60_000)
        await client.open()
        call = asyncio.create_task(client.queue_names())
        while not server.calls:
            await asyncio.sleep(0)
        assert client._opened.engine is not None
        client._opened.engine.renew()
        await client.create_queue("q")
        assert server.connections == 2
        await client.close()
        async with asyncio.timeout(10):
            with pytest.raises((errors.ConnectionLost, errors.ClientClosed)):
                await call


async def test_a_long_poll_does_not_hold_up_other_calls() -> None:
    async with (
        FakeServer(dequeueJobs=lambda _: asyncio.Event().wait(), createQueue=lambda _: None) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        task = asyncio.create_task(client.dequeue("q", wait_ms=60_000))
        while not server.calls:
            await asyncio.sleep(0)
        await client.create_queue("q")
        task.cancel()
        await asyncio.wait([task])


async def test_a_lost_connection_is_an_error_and_the_next_call_reconnects() -> None:
    async with (
        FakeServer(deleteJobs=lambda _: FakeServer.HANG_UP, createQueue=lambda _: None) as server,
        AsyncClient(server.address, connections=1) as client,
    ):
        with pytest.raises(errors.ConnectionLost):
            await client.delete_jobs("q", JobState.FAILED, priority=1)
        assert len(server.called("deleteJobs")) == 1
        await client.create_queue("q")


async def test_a_server_that_is_not_there_is_unreachable_and_the_next_is_tried() -> None:
    async with FakeServer(createQueue=lambda _: None) as server:
        async with AsyncClient("127.0.0.1:1", wait_for_servers=False) as client:
            with pytest.raises(errors.ServerUnreachable, match=r"127\.0\.0\.1:1"):
                await client.create_queue("q")
        async with AsyncClient(["127.0.0.1:1", server.address]) as client:
            await client.create_queue("q")


async def test_a_client_that_is_not_open_says_so() -> None:
    with pytest.raises(errors.ClientClosed):
        await AsyncClient("127.0.0.1:1").create_queue("q")


async def test_many_calls_at_once_each_get_their_own_answer() -> None:
    async with (
        FakeServer(getJobCount=lambda arguments: arguments.request.priority) as server,
        AsyncClient(server.address) as client,
    ):
        counts = await asyncio.gather(*(client.count("q", priority=n) for n in range(1, 100)))
    assert counts == list(range(1, 100))


async def test_a_value_out_of_range_is_the_callers_fault_and_harms_nothing() -> None:
    async with FakeServer(getJobCount=lambda _: 1) as server, AsyncClient(server.address) as client:
        with pytest.raises(errors.CallerError):
            await client.count("q", priority=10**30)
        assert await client.count("q") == 1


async def test_the_remaining_methods_send_and_read_what_the_contract_says() -> None:
    outcome = [t.AckResult("d", 0, None, None, 77)]
    rates = t.QueueRates(1.0, 2.0, 3.0, 4.0, 5.0)
    counts = t.QueueCounts(1, 2, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11)
    info = t.JobInfo(
        descriptor="d",
        state=3,
        attempts_allowed=2,
        attempts_remaining=0,
        custom_status="c",
        created_at_ms=1,
        error_type="E",
        attempts=[t.Attempt(number=1, outcome="failed")],
    )
    bulk_run = t.BulkRun("r1", t.BulkOrder("q", 0, t.JobFilter(3)), "ops", 1, 0, 2, 3, 4)
    methods: dict[str, Any] = {
        "getQueueNames": {"b", "a"},
        "deleteQueue": None,
        "ackDequeuedJobs": None,
        "checkpointJobs": None,
        "checkpointJobsFenced": outcome,
        "heartbeatClaims": outcome,
        "releaseJobs": outcome,
        "cancelJobs": outcome,
        "lookupJobs": {"d": info},
        "scanJobs": t.Scanned([info], "more", True),
        "retryFailedJobs": 3,
        "deleteJobs": 4,
        "deleteJobsByDescriptor": 5,
        "configureQueue": None,
        "getQueueConfig": t.QueueConfig(max_jobs_per_second=0.5, paused=True),
        "resumeQueue": None,
        "unblockKey": 6,
        "getQueueStats": [t.QueueStats("q", False, [counts], 12, rates, 6, True)],
        "countJobs": t.JobCount(2**40, True),
        "listBulkRuns": t.BulkRunsResponse([bulk_run], True, ["2"]),
        "findUniqueKey": t.KeyHolders([info], True),
        "getSettingsInForce": t.SettingsInForce(
            t.QueueConfig(claim_timeout_ms=7), {"claimTimeoutMillis": "jobs.claim_timeout_ms", "newer": "queue"}
        ),
        "getWaitingDequeues": [t.WaitingDequeues("q", "w", 2)],
        "getWorkers": [
            t.ServerWorkers(
                [
                    t.WorkerStatus(
                        "w",
                        7,
                        250,
                        [t.WorkerQueue("q", 1, 2, 3, 4, 5, 6, 7)],
                        30_000,
                        t.WorkerInfo("python", "1.2", "h", 8, 16, 3, 9),
                        1_000,
                        [t.LostClaim("q", "d", 3)],
                    ),
                    t.WorkerStatus(
                        "old", queues=[t.WorkerQueue("q", None, 0, 1, 0, 1, 0)], info=t.WorkerInfo(), lost=[]
                    ),
                ],
                [t.WaitingDequeues("q", "w", 2)],
                "1-2-3",
                3,
                10,
                11,
                12,
            )
        ],
        "explainJob": t.JobExplanation(
            "d",
            info,
            9,
            t.ShardFacts("1", False, True),
            t.QueueFacts(True, 1, None, 2.5, 3, 4.5, 5, 6, 7, 8, 10),
            t.JobsAhead(11, True, False),
        ),
        "getCluster": t.ClusterStatus(
            "a:1",
            [
                t.ClusterServer("a:1", "a-7", {"1": 4}, True, True, None, True, 0, 0, 0),
                t.ClusterServer("b:1", None, {"1": 5}, False, True, 250, False, 3, 6, 7, "1.2", 15, 16, 17),
            ],
            [
                t.ClusterShard("1", True, 8, [0, 1, -1, 2], [2]),
                t.ClusterShard(
                    "2",
                    False,
                    0,
                    [],
                    [],
                    t.ShardDetails(
                        "redis",
                        "r:1/0",
                        False,
                        18,
                        "gone",
                        19,
                        True,
                        False,
                        None,
                        t.ShardJobs(20, 21, 22, 23, 24, 25, 26),
                        t.ShardSize(27, None, 28, 29, True),
                        t.ShardDrain(30, True, 31, 0.5, 32),
                        [t.ShardLane("claim", 33, 34, 35, 36, 37, 1.5, 2.5)],
                        "timeout",
                        t.ShardMemory(41, 42, 43, 44),
                    ),
                ),
                t.ClusterShard(
                    "3",
                    True,
                    0,
                    [],
                    [],
                    t.ShardDetails(
                        "memory", None, True, 38, probing=False, stalled=False, lanes=[], size=t.ShardSize()
                    ),
                ),
            ],
            [t.ForwardedCalls("insert", 1, 2, 3, 4)],
            9,
            10,
            None,
            [t.FrontProcess(1, 11, 12, 13, 14)],
            coordinator_trouble="gone",
        ),
        "getServerInfo": t.ServerInfo("1", ["f"], "memory", 1, 2, 3, 4, 5, 6, 7, 8),
    }
    served = {name: (lambda _, value=value: value) for name, value in methods.items()}
    async with FakeServer(**served) as server, AsyncClient(server.address) as client:
        assert await client.queue_names() == ["a", "b"]
        await client.delete_queue("q", "pw")
        await client.ack_plain("q", [values.Ack("d")])
        await client.checkpoint_plain("q", [values.Checkpoint("d")])
        (checkpointed,) = await client.checkpoint("q", [values.Checkpoint("d", "t", b"n", True, 1, 2, "p")])
        assert checkpointed.deadline_ms == 77
        assert (await client.heartbeat("q", [values.Claim("d", "t")]))[0].applied
        assert (await client.release("q", [values.Claim("d", "t")], delay_ms=9))[0].applied
        assert (await client.cancel("q", ["d"]))[0].applied
        assert (await client.lookup(["x", "d"]))["d"].error_type == "E"
        page = await client.scan("q", JobState.FAILED, paged=True)
        assert (page.continuation, page.incomplete, page.jobs[0].attempts[0].outcome) == ("more", True, "failed")
        assert await client.retry_failed("q", priority=1) == 3
        assert await client.delete_jobs("q", JobState.FAILED, priority=1) == 4
        assert await client.delete_jobs_by_descriptor("q", ["d"]) == 5
        await client.configure_queue("q", QueueConfig(max_backlog=8))
        queue = await client.queue_config("q")
        assert (queue.paused, queue.config.max_jobs_per_second) == (True, 0.5)
        await client.resume_queue("q")
        assert await client.unblock_key("q", "key") == 6
        (stats,) = await client.queue_stats("q")
        assert (stats.total("pending"), stats.rates.retried, stats.waiting_dequeues) == (2, 5.0, 6)
        assert stats.incomplete
        assert stats.counts[0].oldest_due_at_ms == 11
        assert await client.count_jobs("q") == values.JobCount(2**40, incomplete=True)
        listed = await client.list_bulk_runs("q")
        assert ([run.id for run in listed.runs], listed.incomplete, listed.missing_shards) == (["r1"], True, ("2",))
        in_force = await client.settings_in_force("q")
        assert (in_force.values.claim_timeout_ms, in_force.origins) == (
            7,
            {"claim_timeout_ms": "jobs.claim_timeout_ms"},
        )
        assert await client.waiting_dequeues() == [values.WaitingDequeues("q", "w", 2)]
        assert await client.workers(everywhere=True) == [
            values.ServerWorkers(
                [
                    values.WorkerStatus(
                        "w",
                        7,
                        250,
                        [values.WorkerQueue("q", 1, 2, 3, 4, 5, 6, 7)],
                        30_000,
                        values.WorkerInfo("python", "1.2", "h", 8, 16, 3, 9),
                        1_000,
                        [values.LostClaim("q", "d", 3)],
                    ),
                    values.WorkerStatus(
                        "old",
                        0,
                        None,
                        [values.WorkerQueue("q", None, 0, 1, 0, 1, 0)],
                        None,
                        values.WorkerInfo(),
                        lost=[],
                    ),
                ],
                [values.WaitingDequeues("q", "w", 2)],
                "1-2-3",
                3,
                10,
                11,
                12,
            )
        ]
        held = await client.find_unique_key("key", "q", "other")
        assert ([job.descriptor for job in held.jobs], held.incomplete) == (["d"], True)
        explained = await client.explain_job("q", "d")
        assert (explained.queue, explained.ahead, explained.missing) == (
            values.QueueFacts(True, 1, "", 2.5, 3, 4.5, 5, 6, 7, 8, 10),
            values.JobsAhead(11, at_least=True),
            False,
        )
        assert explained.reasons()[-1].code == "shard_drains"
        assert await client.cluster() == values.ClusterStatus(
            "a:1",
            [
                values.ClusterServer("a:1", "a-7", {"1": 4}, answers=True, heard=True, usable=True),
                values.ClusterServer(
                    "b:1", "", {"1": 5}, False, True, 250, False, 3, 6, 7, values.ServerFacts("1.2", 15, 16, 17)
                ),
            ],
            [
                values.ClusterShard("1", True, 8, ["a:1", "b:1", "", ""], [2]),
                values.ClusterShard(
                    "2",
                    False,
                    0,
                    [],
                    [],
                    values.ShardDetails(
                        "redis",
                        "r:1/0",
                        False,
                        18,
                        "gone",
                        19,
                        True,
                        jobs=values.ShardJobs(20, 21, 22, 23, 24, 25, 26),
                        size=values.ShardSize(27, None, 28, 29, late=True),
                        drain=values.ShardDrain(30, True, 31, 0.5, 32),
                        lanes=[values.ShardLane("claim", 33, 34, 35, 36, 37, 1.5, 2.5)],
                        failure_kind="timeout",
                        memory=values.ShardMemory(41, 42, 43, 44),
                    ),
                ),
                values.ClusterShard("3", True, 0, [], [], values.ShardDetails("memory", "", True, 38, lanes=[])),
            ],
            [values.ForwardedCalls("insert", 1, 2, 3, 4)],
            9,
            10,
            front_processes=(values.FrontProcess(1, 11, 12, 13, 14),),
            coordinator_trouble="gone",
        )
        assert (await client.server_info()).max_wait_ms == 8
    assert server.called("releaseJobs")[0].request.delay_ms == 9
    assert server.called("configureQueue")[0].config.max_backlog == 8
    (sent,) = server.called("checkpointJobsFenced")[0].request.requests
    assert (sent.new_body, sent.move_to_pending, sent.attempts_allowed, sent.token) == (b"n", True, 2, "t")


async def test_clients_that_share_a_connection_see_only_their_own_unread_answers() -> None:
    """A worker gives back the jobs that arrived while its loop was blocked, and must not give back another caller's."""
    answer_now = asyncio.Event()

    async def dequeue(_: Any) -> t.DequeueResponse:
        await answer_now.wait()
        return t.DequeueResponse(jobs={"q:s1:p1:1": b"x"})

    async with FakeServer(dequeueJobs=dequeue) as server, AsyncClient(server.address) as client:
        other = client.sharing()
        polling = asyncio.create_task(client.dequeue("q", wait_ms=30_000))
        while not server.calls:
            await asyncio.sleep(0.001)
        answer_now.set()
        unread: list[Any] = []
        while not unread and not polling.done():
            await asyncio.sleep(0)
            unread = client.unread()
            assert other.unread() == []
        assert (await polling).jobs[0].body == b"x"
        assert [job.body for dequeued in unread for job in dequeued.jobs] == [b"x"]


async def test_a_scan_of_one_shard_is_refused_if_the_server_answers_the_jobs_of_others() -> None:
    """A server that is too old for it does not read which shard was asked for."""
    info = t.JobInfo("q:s1:p1:7", 0, attempts_allowed=1, attempts_remaining=1, custom_status="", created_at_ms=1)
    page = t.Scanned([info])
    async with FakeServer(scanJobs=lambda _: page) as server, AsyncClient(server.address) as client:
        for name in ("1", "s1"):
            assert len((await client.scan("q", shard=name)).jobs) == 1
        with pytest.raises(errors.UnknownMethod, match="older than scans of one shard"):
            await client.scan("q", shard="2")
    assert [call.request.shard for call in server.called("scanJobs")] == ["1", "s1", "2"]


async def test_a_filter_is_refused_if_the_server_answers_jobs_that_it_has_not_compared() -> None:
    """A server that is too old for filters reads state, priority and body only, which are enough for some filters."""
    info = t.JobInfo("q:s1:p1:7", 3, attempts_allowed=1, attempts_remaining=1, custom_status="", created_at_ms=1)
    task, body = JobFilter(JobState.FAILED, tasks=frozenset({"send"})), JobFilter(JobState.FAILED, 2, "a.*b")
    async with (
        FakeServer(scanJobs=lambda _: t.Scanned([info]), countJobs=lambda _: t.JobCount(1)) as server,
        AsyncClient(server.address) as client,
    ):
        with pytest.raises(errors.UnknownMethod, match="older than filters"):
            await client.scan("q", filter=task)
        with pytest.raises(errors.UnknownMethod, match="older than filters"):
            await client.count_jobs("q", filter=task)
        assert len((await client.scan("q", filter=body)).jobs) == 1
        assert (await client.count_jobs("q", filter=body)).jobs == 1
    [_, scan] = [call.request for call in server.called("scanJobs")]
    assert (scan.state, scan.priority, scan.regex) == (3, 2, "a.*b")
