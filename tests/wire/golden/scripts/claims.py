"""Claims, and what workers report of them."""

from __future__ import annotations

from typing import Any

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types

NOW_MS = 1_767_225_600_000
I32, I64 = 2**31 - 1, 2**63 - 1
WORKER = ("python", "1.2", "höst", 2**40, 16, 3, NOW_MS - 5)


async def enqueue(to: ScenarioRecorder, queue: str, *bodies: bytes, **more: Any) -> list[str]:
    """Descriptors of new jobs, all made with `more`."""
    jobs = [types.PinLaterJob(body=body, **more) for body in bodies]
    answer = await to.call("enqueueJobs", "for what follows", request=types.PinLaterEnqueueRequest(queue, jobs))
    return list(answer.jobDescriptors)


async def claim(to: ScenarioRecorder, queue: str, limit: int = 10, **more: Any) -> tuple[list[str], Any]:
    """Descriptors of claimed jobs, and their metadata."""
    answer = await to.call(
        "dequeueJobs", "for what follows", request=types.PinLaterDequeueRequest(queue, limit, **more)
    )
    return list(answer.jobOrder or ()), answer.jobMetadata


async def poll(to: ScenarioRecorder, note: str, request: Any) -> None:
    """A dequeue whose wait ends."""
    await to.send("dequeueJobs", note, request=request)
    await to.do(f"wait_for_poll {request.queueName} 1")
    await to.do(f"advance {request.waitMillis + 1}")
    await to.answer()


@scenario()
async def dequeues(to: ScenarioRecorder) -> None:
    request = types.PinLaterDequeueRequest
    await to.call("dequeueJobs", "there is no such queue", request=request("mail", 1))
    await to.call("createQueue", name="mail")
    await to.call("dequeueJobs", "an empty queue", request=request("mail", 10))
    await to.call("dequeueJobs", "an empty queue, no optional field", request=bare(request, queueName="mail", limit=10))
    await enqueue(to, "mail", b"3", "größe".encode(), priority=3, headers={"a": "1", "ü": "😀"})
    await enqueue(to, "mail", b"\x00\xff", priority=1)
    await enqueue(to, "mail", b"2", priority=2, claimTimeoutMillis=5_000, numAttemptsAllowed=7)
    await enqueue(to, "mail", b"later", runAfterTimestampMillis=NOW_MS + 60_000)
    await to.do("advance 7")
    await to.call("dequeueJobs", "a dry run", request=request("mail", 10, dryRun=True))
    await to.call("dequeueJobs", "of no jobs", request=request("mail", 0))
    await to.call("dequeueJobs", "of fewer than no jobs", request=request("mail", -(2**31)))
    await to.call("dequeueJobs", "one job", request=request("mail", 1))
    worker = types.WorkerInfo(*WORKER)
    await to.call(
        "dequeueJobs",
        "every field",
        request=request("mail", 1, types.PinLaterJobAckRequest("mail", [], [], True), False, 0.5, 1, 7, worker),
    )
    await to.call(
        "dequeueJobs", "a worker that says nothing", request=request("mail", 1, process=-1, worker=types.WorkerInfo())
    )
    await to.call("dequeueJobs", "the most jobs", request=request("mail", I32))
    await to.call("dequeueJobs", "nothing is left that is due", request=request("mail", 10))
    await poll(to, "a wait that ends without a job", request("mail", 1, waitMillis=5))
    await to.call("dequeueJobs", "a wait below 0", request=request("mail", 1, waitMillis=-1))
    for coverage in (0.0, 1e300, float("nan")):
        await to.call("dequeueJobs", f"coverage {coverage}", request=request("mail", 1, coverage=coverage))
    await to.call("getWorkers", "who asked", everywhere=False)
    await to.do("advance 60000")
    await to.do("sweep")
    names, metadata = await claim(to, "mail")
    await to.call("getWorkers", "one claim timed out, and a minute has passed", everywhere=True)
    acks = types.PinLaterJobAckRequest(
        "mail",
        [types.PinLaterJobAckInfo(names[0], claimToken=metadata[names[0]].claimToken)],
        [types.PinLaterJobAckInfo("mail:s1:p1:9"), types.PinLaterJobAckInfo(names[1], "späť", 5_000)],
    )
    await to.call("dequeueJobs", "with acks", request=request("mail", 1, acks))
    await to.call("dequeueJobs", "with acks, and a dry run", request=request("mail", 1, acks, True))
    await to.call("createQueue", name="audio")
    await to.call("dequeueJobs", "with acks of another queue", request=request("audio", 1, acks))
    await to.call(
        "dequeueJobs",
        "an ack that names no job",
        request=request(
            "mail",
            1,
            bare(
                types.PinLaterJobAckRequest,
                queueName="mail",
                jobsFailed=[bare(types.PinLaterJobAckInfo, jobDescriptor="x")],
            ),
        ),
    )
    nowhere = bare(types.PinLaterJobAckRequest, queueName="nowhere")
    await to.call("dequeueJobs", "acks of a queue that does not exist", request=request("mail", 1, nowhere))
    await to.call("pauseQueue", queueName="mail")
    await to.call("dequeueJobs", "a paused queue", request=request("mail", 1))
    await to.call("dequeueJobs", "a paused queue with acks", request=request("mail", 1, acks))
    await to.call("dequeueJobs", "a paused queue, a dry run", request=request("mail", 1, dryRun=True))
    await poll(to, "a paused queue, with a wait", request("mail", 1, waitMillis=5))
    await to.call("resumeQueue", queueName="mail")
    await enqueue(to, "mail", b"a", b"b", b"c")
    await to.call("configureQueue", queueName="mail", config=bare(types.QueueConfig, maxJobsPerSecond=0.5, burst=1))
    await to.call("dequeueJobs", "within the limit", request=request("mail", 1))
    await to.call("dequeueJobs", "over the limit", request=request("mail", 1))
    await to.call("configureQueue", queueName="mail", config=bare(types.QueueConfig, maxJobsPerSecond=0.0))
    await to.call("dequeueJobs", "a limit of 0", request=request("mail", 1))


@scenario()
async def long_polls(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    await to.call("createQueue", name="audio")
    await to.call("getWaitingDequeues", "there are none")
    request = types.PinLaterDequeueRequest
    for connection, queue in (("first", "mail"), ("second", "mail"), ("third", "audio")):
        to.source = f"wörker {queue}"
        await to.send("dequeueJobs", "waits", on=connection, request=request(queue, 1, waitMillis=60_000, process=5))
        await to.do(f"wait_for_poll {queue} {2 if connection == 'second' else 1}")
    to.source = "golden"
    await to.call("getWaitingDequeues", "by queue and source")
    await to.call("getQueueStats", "with dequeues that wait", queueNames=["mail"])
    await to.call("getWorkers", "with dequeues that wait", everywhere=False)
    await enqueue(to, "audio", b"1")
    await to.answer("third")
    await to.call("getWaitingDequeues", "fewer")
    await to.do("drain")
    await to.answer("first")
    await to.answer("second")
    await to.call("dequeueJobs", "the server stops", request=request("mail", 1, waitMillis=60_000))
    await to.call("getWaitingDequeues", "none again")


@scenario()
async def reports(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    info, request = types.PinLaterJobAckInfo, types.PinLaterJobAckRequest
    await enqueue(to, "mail", *[f"{number}".encode() for number in range(12)])
    names, metadata = await claim(to, "mail", 12)
    tokens = [metadata[name].claimToken for name in names]
    await to.do("advance 11")
    await to.call("ackDequeuedJobs", "no acks", request=request("mail", [], []))
    await to.call("ackDequeuedJobs", "no lists of acks", request=bare(request, queueName="mail"))
    await to.call("ackDequeuedJobs", "one of each kind", request=request("mail", [info(names[0])], [info(names[1])]))
    await to.call("ackDequeuedJobs", "the same again", request=request("mail", [info(names[0])], [info(names[1])]))
    await to.call(
        "ackDequeuedJobs",
        "every field",
        request=request("mail", [], [info(names[2], "späť", 5_000, tokens[2], True, "TypeError", "größe")], True),
    )
    await to.call("ackDequeuedJobs", "there is no such job", request=request("mail", [info("mail:s1:p1:9")], []))
    await to.call("ackDequeuedJobs", "that is no descriptor", request=request("mail", [info("mail")], []))
    await to.call("ackDequeuedJobs", "of another queue", request=request("mail", [info("audio:s1:p1:9")], []))
    await to.call("ackDequeuedJobs", "there is no such queue", request=request("nowhere", [], []))

    await to.call("ackJobs", "no acks", request=request("mail", [], []))
    await to.call("ackJobs", "no lists of acks", request=bare(request, queueName="mail"))
    every = info(names[3], "späť", 5_000, tokens[3], False, "TypeError", "größe 😀")
    await to.call(
        "ackJobs", "every field", request=request("mail", [info(names[4], "ok", 0, tokens[4])], [every], True)
    )
    await to.call(
        "ackJobs", "the same again", request=request("mail", [info(names[4], "ok", 0, tokens[4])], [every], True)
    )
    await to.call(
        "ackJobs",
        "no optional field",
        request=bare(request, queueName="mail", jobsSucceeded=[bare(info, jobDescriptor=names[5])]),
    )
    await to.call(
        "ackJobs",
        "every outcome",
        request=request(
            "mail",
            [info(names[6], claimToken=tokens[6]), info(names[5]), info("mail:s1:p1:9")],
            [info(names[7], claimToken="another"), info(names[8], finalFailure=True, errorType="E", errorText="no")],
        ),
    )
    await to.call(
        "ackJobs",
        "the longest texts",
        request=request("mail", [], [info(names[9], errorType="T" * 300, errorText="é" * 5_000)]),
    )
    await to.call(
        "ackJobs",
        "the extremes of a delay",
        request=request(
            "mail", [], [info(names[10], retryDelayMillis=I64), info(names[11], retryDelayMillis=-(2**63))]
        ),
    )
    await to.call("ackJobs", "that is no descriptor", request=request("mail", [info("ü:s1:p1:1")], []))
    await to.call("ackJobs", "the number is too large", request=request("mail", [info(f"mail:s1:p1:{2**63}")], []))
    await to.call("ackJobs", "there is no such shard", request=request("mail", [info("mail:s2:p1:9")], []))
    await to.call("ackJobs", "of another queue", request=request("mail", [info("audio:s1:p1:9")], []))
    await to.call("ackJobs", "there is no such queue", request=request("nowhere", [], []))
    await to.call("lookupJobs", "what became of them", request=types.PinLaterLookupJobRequest(names, True))
    await to.call("getWorkers", "whose acks came late", everywhere=False)
    await to.call("getFailures", "in groups", request=types.FailuresRequest(["mail"]))


@scenario()
async def checkpoints(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    one, request = types.PinLaterCheckpointJobRequest, types.PinLaterCheckpointJobsRequest
    await enqueue(to, "mail", *[f"{number}".encode() for number in range(9)], claimTimeoutMillis=50_000)
    names, metadata = await claim(to, "mail", 9)
    tokens = [metadata[name].claimToken for name in names]
    await to.do("advance 11")
    for method in ("checkpointJobs", "checkpointJobsFenced"):
        a, b, c, d, *names = names
        token, _, _, _, *tokens = tokens
        await to.call(method, "no checkpoints", request=request("mail", []))
        await to.call(method, "no optional field", request=request("mail", [bare(one, jobDescriptor=a)]))
        await to.call(method, "the defaults", request=request("mail", [one(b)]))
        every = one(a, "größe".encode() + b"\xff", True, NOW_MS + 9_000, 9, "halb ", token)
        await to.call(method, "every field", request=request("mail", [every], True))
        await to.call(method, "the same again", request=request("mail", [every]))
        await to.call(
            method, "several", request=request("mail", [one(b, b""), one(c, moveToPending=True), one("mail:s1:p1:9")])
        )
        await to.call(method, "another token", request=request("mail", [one(d, b"x", claimToken="another")]))
        await to.call(method, "a job that waits", request=request("mail", [one(c, b"x")]))
        other = bare(types.RequestContext, source="another")
        await to.call(method, "by another source", context=other, request=request("mail", [one(d, b"x")]))
        await to.call(method, "no attempts", request=request("mail", [one(d, numOfAttemptsAllowed=0)]))
        await to.call(method, "the most attempts", request=request("mail", [one(d, numOfAttemptsAllowed=I32)]))
        await to.call(method, "a due time past all", request=request("mail", [one(d, runAfterTimestampMillis=I64)]))
        await to.call(method, "a long text", request=request("mail", [one(d, prependCustomStatus="ä" * 5_001)]))
        await to.call(method, "that is no descriptor", request=request("mail", [one("mail:s1:p9:x")]))
        await to.call(method, "there is no such queue", request=request("nowhere", [one(d)]))
        await to.call("lookupJobs", "what became of them", request=types.PinLaterLookupJobRequest([a, b, c, d], True))


@scenario()
async def leases(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    ref, claims, release = types.ClaimRef, types.ClaimsRequest, types.ReleaseRequest
    names = await enqueue(to, "mail", b"1", b"2", b"3", b"4", b"5", claimTimeoutMillis=50_000)
    answer = await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("mail", 4))
    a, b, c, d = answer.jobOrder
    tokens = {name: answer.jobMetadata[name].claimToken for name in names[:4]}
    await to.do("advance 11")
    worker = types.WorkerInfo(*WORKER)
    await to.call("heartbeatClaims", "no claims", request=claims("mail", []))
    await to.call("heartbeatClaims", "required fields only", request=claims("mail", [ref(a, tokens[a])]))
    await to.call("heartbeatClaims", "every field", request=claims("mail", [ref(b, tokens[b])], True, 7, worker))
    outcomes = [ref(a, tokens[a]), ref(b, "another"), ref(names[4], "none"), ref("mail:s1:p1:9", "none")]
    await to.call("heartbeatClaims", "every outcome", request=claims("mail", outcomes))
    await to.call("heartbeatClaims", "there is no such claim", request=claims("mail", [ref("mail:s1:p1:9", "none")]))
    await to.call("heartbeatClaims", "no token", request=claims("mail", [ref(a, "")]))
    await to.call("heartbeatClaims", "that is no descriptor", request=claims("mail", [ref("", "")]))
    await to.call("heartbeatClaims", "there is no such queue", request=claims("nowhere", [ref(a, tokens[a])]))
    await to.call("releaseJobs", "no claims", request=release("mail", []))
    await to.call(
        "releaseJobs", "no optional field", request=bare(release, queueName="mail", claims=[ref(a, tokens[a])])
    )
    await to.call("releaseJobs", "the same again", request=release("mail", [ref(a, tokens[a])]))
    await to.call("releaseJobs", "every field", request=release("mail", [ref(b, tokens[b])], 3_000, True))
    outcomes = [ref(c, tokens[c]), ref(d, "another"), ref(names[4], "none"), ref("mail:s1:p1:9", "none")]
    await to.call("releaseJobs", "every outcome", request=release("mail", outcomes))
    await to.call("releaseJobs", "a delay below 0", request=release("mail", [ref(d, tokens[d])], -1))
    await to.call("releaseJobs", "that is no descriptor", request=release("mail", [ref("mail:1", "")]))
    await to.call("releaseJobs", "there is no such queue", request=release("nowhere", []))
    await to.call("lookupJobs", "what became of them", request=types.PinLaterLookupJobRequest(names, False))
    await to.do("advance 50001")
    await to.do("sweep")
    await to.call(
        "heartbeatClaims", "a claim that has timed out", request=claims("mail", [ref(d, tokens[d])], process=7)
    )
    await to.call("getWorkers", "whose claim timed out", everywhere=False)
