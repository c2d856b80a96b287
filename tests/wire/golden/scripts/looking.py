"""Looks at jobs, which change nothing."""

from __future__ import annotations

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types
from tests.wire.golden.scripts.claims import claim, enqueue
from tests.wire.golden.scripts.jobs import full_job

NOW_MS = 1_767_225_600_000
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = range(4)
I32, I64 = 2**31 - 1, 2**63 - 1


@scenario()
async def looks(to: ScenarioRecorder) -> None:
    for queue in ("mail", "audio", "empty"):
        await to.call("createQueue", name=queue)
    names = await enqueue(
        to, "mail", b"succeeds", b"fails", b"fails finally", b"in progress", claimTimeoutMillis=50_000
    )
    answer = await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("mail", [full_job(uniqueKey="key")]))
    names += answer.jobDescriptors
    claimed, _ = await claim(to, "mail", 4)
    await to.do("advance 1000")
    info = types.PinLaterJobAckInfo
    await to.call(
        "ackJobs",
        request=types.PinLaterJobAckRequest(
            "mail",
            [info(claimed[0], "done")],
            [
                info(claimed[1], "[progress] 3 of 5\nspät", 5_000, errorType="TypeError", errorText="größe"),
                info(claimed[2], finalFailure=True, errorType="ValueError", errorText="no 17"),
            ],
        ),
    )
    names += await enqueue(to, "mail", b"{1}", b"{2}", b"{3}", priority=2)
    names += await enqueue(to, "audio", b"other", uniqueKey="key")
    await to.do("advance 1000")

    lookup = types.PinLaterLookupJobRequest
    await to.call("lookupJobs", "of every state, without bodies", request=lookup(names))
    await to.call("lookupJobs", "of every state, with bodies", request=lookup(names, True))
    await to.call("lookupJobs", "no optional field", request=bare(lookup, jobDescriptors=names[:1]))
    await to.call("lookupJobs", "of no jobs", request=lookup([]))
    await to.call("lookupJobs", "one of them does not exist", request=lookup([names[0], "mail:s1:p1:9"]))
    await to.call("lookupJobs", "one of them twice", request=lookup([names[0], names[0]]))
    await to.call("lookupJobs", "there is no such queue", request=lookup(["nowhere:s1:p1:9"]))
    await to.call("lookupJobs", "there is no such shard", request=lookup(["mail:s9:p1:9"]))
    await to.call("lookupJobs", "that is no descriptor", request=lookup(["größe"]))

    for method in ("getJobCount", "countJobs"):
        count = types.PinLaterGetJobCountRequest
        for state in range(4):
            await to.call(method, f"state {state}", request=count("mail", state))
        await to.call(method, "no optional field", request=bare(count, queueName="mail", jobState=PENDING))
        await to.call(method, "every field", request=count("mail", PENDING, 2, False, "[12]"))
        await to.call(method, "not due yet", request=count("mail", PENDING, None, True))
        await to.call(method, "a regex that no body fits", request=count("mail", PENDING, bodyRegexToMatch="^x"))
        await to.call(method, "a regex that is none", request=count("mail", PENDING, bodyRegexToMatch="("))
        await to.call(method, "an empty regex", request=count("mail", PENDING, bodyRegexToMatch=""))
        await to.call(method, "no such priority", request=count("mail", PENDING, 4))
        await to.call(method, "no such state", request=count("mail", 9))
        await to.call(method, "there is no such queue", request=count("nowhere", PENDING))

    scan = types.PinLaterScanJobsRequest
    for state in range(4):
        await to.call("scanJobs", f"state {state}", request=scan("mail", state))
    await to.call("scanJobs", "no optional field", request=bare(scan, queueName="mail", jobState=PENDING))
    await to.call("scanJobs", "more than there are", request=scan("mail", PENDING, limit=10_000))
    await to.call("scanJobs", "not due yet", request=scan("mail", PENDING, scanFutureJobs=True))
    await to.call("scanJobs", "every field", request=scan("mail", PENDING, 2, False, "0", 2, "[12]", True, True, "1"))
    page = await to.call("scanJobs", "the first page", request=scan("mail", PENDING, limit=2, paged=True))
    page = await to.call(
        "scanJobs", "the next page", request=scan("mail", PENDING, continuation=page.continuation, limit=2, paged=True)
    )
    await to.call(
        "scanJobs",
        "the page behind it",
        request=scan("mail", PENDING, continuation=page.continuation, limit=2, paged=True),
    )
    await to.call("scanJobs", "of an empty queue", request=scan("empty", PENDING, paged=True))
    await to.call("scanJobs", "no jobs", request=scan("mail", PENDING, limit=0))
    await to.call("scanJobs", "fewer than no jobs", request=scan("mail", PENDING, limit=-1))
    await to.call("scanJobs", "the most jobs", request=scan("mail", SUCCEEDED, limit=I32))
    await to.call("scanJobs", "no such continuation", request=scan("mail", PENDING, continuation="größe"))
    await to.call("scanJobs", "behind the end", request=scan("mail", PENDING, continuation="-1"))
    await to.call("scanJobs", "no such shard", request=scan("mail", PENDING, shard="9"))
    await to.call("scanJobs", "a shard with its letter", request=scan("mail", SUCCEEDED, shard="s1"))
    await to.call("scanJobs", "a regex that is none", request=scan("mail", PENDING, bodyRegexToMatch="["))
    await to.call("scanJobs", "no such priority", request=scan("mail", PENDING, 0))
    await to.call("scanJobs", "no such state", request=scan("mail", -1))
    await to.call("scanJobs", "there is no such queue", request=scan("nowhere", PENDING))

    key = types.UniqueKeyRequest
    await to.call("findUniqueKey", "in all queues", request=key([], "key"))
    await to.call("findUniqueKey", "in one queue", request=key(["audio"], "key"))
    await to.call("findUniqueKey", "that no job holds", request=key(["mail"], "größe"))
    await to.call("findUniqueKey", "one of the queues does not exist", request=key(["mail", "nowhere"], "key"))
    await to.call("findUniqueKey", "there is no such queue", request=key(["nowhere"], "key"))
    await to.call("findUniqueKey", "an empty key", request=key(["mail"], ""))
    await to.call("findUniqueKey", "a key that is too long", request=key(["mail"], "x" * 257))

    for name, note in zip(
        names, ("succeeded", "to be retried", "failed", "in progress", "not due yet", "due", "due"), strict=False
    ):
        await to.call("explainJob", note, queueName="mail", jobDescriptor=name)
    await to.call("pauseQueue", queueName="mail")
    await to.call("explainJob", "of a paused queue", queueName="mail", jobDescriptor=names[6])
    await to.call("resumeQueue", queueName="mail")
    await to.call("configureQueue", queueName="mail", config=bare(types.QueueConfig, maxJobsPerSecond=0.5))
    await to.call("explainJob", "of a queue with a limit", queueName="mail", jobDescriptor=names[6])
    await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("mail", 1))
    await to.call("explainJob", "of a queue whose limit is used up", queueName="mail", jobDescriptor=names[6])
    await to.call("explainJob", "there is no such job", queueName="mail", jobDescriptor="mail:s1:p1:9")
    await to.call("explainJob", "a job of another queue", queueName="mail", jobDescriptor=names[-1])
    await to.call("explainJob", "that is no descriptor", queueName="mail", jobDescriptor="x")
    await to.call("explainJob", "there is no such queue", queueName="nowhere", jobDescriptor="nowhere:s1:p1:9")
    await to.call("getCluster", "a server alone")
    await to.do("sample")
    await to.call("getCluster", "a server alone, whose jobs were counted")
    await to.call("getQueueOwners", "a server alone")
    await to.call("getWorkers", "none that says its name", everywhere=True)


@scenario("with low bounds")
async def filters(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    for task in ("send", "bill", "send"):
        await enqueue(to, "mail", task.encode(), headers={"pinlater-task": task})
        await to.do("advance 1000")
    chosen, scan, count = types.JobFilter, types.PinLaterScanJobsRequest, types.PinLaterGetJobCountRequest
    send = bare(chosen, jobState=PENDING, tasks=["send"])
    page = await to.call("scanJobs", "of a task", request=scan("mail", PENDING, limit=1, paged=True, filter=send))
    more = scan("mail", PENDING, continuation=page.continuation, limit=5, paged=True, filter=send)
    await to.call("scanJobs", "of a task, the next page", request=more)
    for note, wanted in {
        "every field": chosen(FAILED, 2, "a.*b", ["send"], {"ü": "1"}, "größe", 3, 1, 2**40, "0123456789abcdef", True),
        "no such state": chosen(9),
        "no such priority": chosen(PENDING, 9),
        "a regex that is none": chosen(PENDING, bodyRegexToMatch="("),
        "times that exclude each other": chosen(PENDING, enqueuedFromMillis=2, enqueuedBeforeMillis=1),
        "fewer than no attempts": chosen(PENDING, minAttempts=-1),
        "that is no group": chosen(PENDING, groupName="größe"),
    }.items():
        await to.call("scanJobs", note, request=scan("mail", PENDING, paged=True, filter=wanted))
        await to.call("countJobs", note, request=count("mail", PENDING, filter=wanted))
    await to.call("scanJobs", "not paged", request=scan("mail", PENDING, filter=send))
    await to.call("getJobCount", "with a filter", request=count("mail", PENDING, filter=send))
    counted = await to.call("countJobs", "of a task", request=count("mail", PENDING, filter=send))
    following = count("mail", PENDING, filter=send, continuation=counted.continuation)
    await to.call("countJobs", "of a task, the rest", request=following)
    order = types.BulkOrder("mail", types.BulkAction.DELETE, send, maxJobs=1)
    await to.call("startLimitedBulkRun", "of one job", order=order)
    await to.do("finish_runs")
    await to.do("advance 1000")
    await to.call("getBulkRuns", "one of one job", queueNames=["mail"])
    order.maxJobs = 0
    await to.call("startLimitedBulkRun", "of no job", order=order)
