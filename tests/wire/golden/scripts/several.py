"""Several shards, some of which fail, and several servers."""

from __future__ import annotations

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types
from tests.wire.golden.scripts.callers import every_call
from tests.wire.golden.servers import SECRETS

PENDING, IN_PROGRESS, SUCCEEDED, FAILED = range(4)


@scenario("in a cluster")
async def cluster(to: ScenarioRecorder) -> None:
    await to.call("getServerInfo", "with an id")
    await to.call("getCluster", "of several servers")
    await to.call("getQueueOwners", "of several servers")
    await to.call("getWorkers", "of this server", everywhere=False)
    await to.call("getWorkers", "of several servers", everywhere=True)


@scenario("with a draining shard")
async def draining(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("mail", [types.PinLaterJob(b"1")] * 3))
    await to.do("sample")
    await to.call("getCluster", "a shard drains")


async def _jobs_on_both(to: ScenarioRecorder) -> list[str]:
    """Claimed jobs of both shards, each followed by its token."""
    names: list[str] = []
    await to.call("createQueue", name="mail")
    for shard in ("1", "2"):
        await to.do(f"only {shard}")
        jobs = [types.PinLaterJob(b"1"), types.PinLaterJob(b"2", uniqueKey=f"key {shard}")]
        names += (await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("mail", jobs))).jobDescriptors
    await to.do("both")
    return names


@scenario("on two shards")
async def a_shard_fails(to: ScenarioRecorder) -> None:
    names = await _jobs_on_both(to)
    answer = await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("mail", 4, coverage=1.0))
    answer2 = await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("mail", 4, coverage=1.0))
    metadata = {**(answer.jobMetadata or {}), **(answer2.jobMetadata or {})}
    tokens = {name: metadata[name].claimToken for name in names}
    await to.call("getCluster", "both shards are in reach")
    await to.call("getQueueStats", "of jobs on both shards", queueNames=["mail"])
    await to.do("break 2")
    await to.do("advance 60000")
    await to.call("getCluster", "a shard is not in reach")
    refs = [types.ClaimRef(name, tokens[name]) for name in names]
    for whole in (False, True):
        note = "errors of items" if whole else "an error of the call"
        await to.call("heartbeatClaims", note, request=types.ClaimsRequest("mail", refs, whole))
        checkpoints = [
            types.PinLaterCheckpointJobRequest(names[0], b"x"),
            types.PinLaterCheckpointJobRequest(names[2], b"x"),
        ]
        await to.call(
            "checkpointJobsFenced", note, request=types.PinLaterCheckpointJobsRequest("mail", checkpoints, whole)
        )
        release = [refs[0], refs[2]]
        await to.call("releaseJobs", note, request=types.ReleaseRequest("mail", release, perItemErrors=whole))
        acks = [types.PinLaterJobAckInfo(names[1]), types.PinLaterJobAckInfo(names[3])]
        await to.call("ackJobs", note, request=types.PinLaterJobAckRequest("mail", acks, [], whole))
        await to.call("ackDequeuedJobs", note, request=types.PinLaterJobAckRequest("mail", acks, [], whole))
        with_acks = types.PinLaterJobAckRequest("mail", acks, [], whole)
        await to.call("dequeueJobs", f"with acks, {note}", request=types.PinLaterDequeueRequest("mail", 4, with_acks))
    await to.call("cancelJobs", "one is on the lost shard", queueName="mail", jobDescriptors=names)
    await to.call("runJobs", "one is on the lost shard", request=types.RunJobsRequest("mail", names))
    await to.call("changePriority", "one is on the lost shard", request=types.ChangePriorityRequest("mail", names, 2))
    await to.call("deleteJobsByDescriptor", "one is on the lost shard", queueName="mail", jobDescriptors=names)
    await to.call("lookupJobs", "one is on the lost shard", request=types.PinLaterLookupJobRequest(names))
    await to.call("explainJob", "on the lost shard", queueName="mail", jobDescriptor=names[2])
    await to.call("scanJobs", "of the lost shard", request=types.PinLaterScanJobsRequest("mail", PENDING, shard="2"))
    await to.call("findUniqueKey", "a shard is lost", request=types.UniqueKeyRequest([], "key 1"))
    await to.do("sample")
    for method, arguments in every_call("mail").items():
        await to.call(method, "a shard is lost", **arguments)
    await to.do("write_audit")
    await to.call("getAudit", "a shard is lost", request=bare(types.AuditRequest))


@scenario("on two shards")
async def partitions(to: ScenarioRecorder) -> None:
    names = await _jobs_on_both(to)
    await to.call("configureQueue", "partitions", queueName="mail", config=bare(types.QueueConfig, partitions=2))
    await to.call("getQueueStats", "set by an operator", queueNames=["mail"])
    await to.call("explainJob", "a queue with partitions", queueName="mail", jobDescriptor=names[0])
    await to.call("getCluster", "a queue has partitions")
    await to.call("configureQueue", "no partitions", queueName="mail", config=bare(types.QueueConfig))
    await to.call("getQueueStats", "automatic", queueNames=["mail"])
    await to.do("only 1")
    await to.do("lose 1")
    await to.call("explainJob", "its shard drains, another is lost", queueName="mail", jobDescriptor=names[2])


@scenario("on two shards")
async def a_shard_with_ordering_keys_drains(to: ScenarioRecorder) -> None:
    async def enqueue(note: str) -> str:
        request = types.PinLaterEnqueueRequest("mail", [types.PinLaterJob(b"x", orderingKey="k")])
        return str((await to.call("enqueueJobs", note, request=request)).jobDescriptors[0])

    await to.call("createQueue", name="mail")
    await to.do("only 1")
    await enqueue("on the shard that drains then")
    await to.do("only 2")
    name = await enqueue("on the next one")
    await to.call("explainJob", "of a job that waits for another shard", queueName="mail", jobDescriptor=name)
    await to.do("lose 1")
    await to.call("explainJob", "a shard that can't be asked", queueName="mail", jobDescriptor=name)


@scenario("on two shards")
async def all_shards_fail(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    await to.do("break 1")
    await to.do("break 2")
    for method, arguments in every_call("mail").items():
        await to.call(method, "all shards are lost", **arguments)


@scenario("on two shards")
async def calls_of_shards_fail(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("mail", [types.PinLaterJob(b"1")]))
    await to.do("lose 1")
    await to.do("lose 2")
    await to.call(
        "enqueueJobs",
        "the shard fails in the call",
        request=types.PinLaterEnqueueRequest("mail", [types.PinLaterJob(b"1")]),
    )


@scenario("with tokens, on two shards")
async def texts_of_failures(to: ScenarioRecorder) -> None:
    to.token = SECRETS["admin"]
    await to.call("createQueue", name="mail")
    await to.do("break 2")
    chosen = bare(types.JobFilter, jobState=PENDING)
    order = types.BulkOrder("mail", types.BulkAction.DELETE, chosen, forGood=True)
    await to.call("startBulkRun", "a shard is lost", order=order)
    await to.do("wait_for_pause")
    await to.do("advance 60000")
    await to.do("wait_for_news")
    for caller in ("operator", "reader"):
        to.token = SECRETS[caller]
        note = {"operator": "texts of failures are shown", "reader": "texts of failures are not shown"}[caller]
        await to.call("getCluster", note)
        await to.call("getBulkRuns", note, queueNames=[])
        await to.call("listBulkRuns", note, request=types.BulkRunsRequest([]))


@scenario("with quotas")
async def quotas(to: ScenarioRecorder) -> None:
    to.token = SECRETS["admin"]
    await to.call("createQueue", name="mail")
    poll = types.PinLaterDequeueRequest("mail", 1, waitMillis=60_000)
    await to.send("dequeueJobs", "as many polls as the quota has", on="poll", request=poll)
    await to.do("wait_for_poll mail 1")
    await to.call("dequeueJobs", "more polls than the quota has", request=poll)
    await to.call("getQueueNames", "more connections than the quota has", on="third")
    await to.closed("third")
    await to.do("drain")
    await to.answer("poll")
