"""Access control: callers without a token, with too few roles, for few queues, and who see masked bodies."""

from __future__ import annotations

from typing import Any

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types
from tests.wire.golden.scripts.claims import claim, enqueue
from tests.wire.golden.servers import ADMIN_PASSWORD, SECRETS

NOW_MS = 1_767_225_600_000
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = range(4)
GONE = "mail:s1:p1:9"


def every_call(queue: str) -> dict[str, dict[str, Any]]:
    """The arguments of a short call of each method about that queue. Most find nothing to do."""
    chosen = types.PinLaterGetJobCountRequest(queue, PENDING)
    acks = types.PinLaterJobAckRequest(queue, [], [])
    checkpoints = types.PinLaterCheckpointJobsRequest(queue, [])
    descriptors = [f"{queue}:s1:p1:9"]
    return {
        "createQueue": {"name": queue},
        "enqueueJobs": {"request": types.PinLaterEnqueueRequest(queue, [types.PinLaterJob(b"1")])},
        "dequeueJobs": {"request": types.PinLaterDequeueRequest(queue, 1)},
        "ackDequeuedJobs": {"request": acks},
        "ackJobs": {"request": acks},
        "checkpointJobs": {"request": checkpoints},
        "checkpointJobsFenced": {"request": checkpoints},
        "heartbeatClaims": {"request": types.ClaimsRequest(queue, [])},
        "releaseJobs": {"request": types.ReleaseRequest(queue, [])},
        "lookupJobs": {"request": types.PinLaterLookupJobRequest(descriptors, True)},
        "getJobCount": {"request": chosen},
        "countJobs": {"request": chosen},
        "getQueueNames": {},
        "scanJobs": {"request": types.PinLaterScanJobsRequest(queue, SUCCEEDED)},
        "findUniqueKey": {"request": types.UniqueKeyRequest([queue], "key")},
        "retryFailedJobs": {"request": types.PinLaterRetryFailedJobsRequest(queue)},
        "deleteJobs": {"request": types.PinLaterDeleteJobsRequest(queue, SUCCEEDED)},
        "deleteJobsByDescriptor": {"queueName": queue, "jobDescriptors": descriptors},
        "deleteJobsInState": {"queueName": queue, "jobDescriptors": descriptors, "state": SUCCEEDED},
        "cancelJobs": {"queueName": queue, "jobDescriptors": descriptors},
        "runJobs": {"request": types.RunJobsRequest(queue, descriptors)},
        "changePriority": {"request": types.ChangePriorityRequest(queue, descriptors, 1)},
        "configureQueue": {"queueName": queue, "config": bare(types.QueueConfig)},
        "getQueueConfig": {"queueName": queue},
        "getSettingsInForce": {"queueName": queue},
        "pauseQueue": {"queueName": queue},
        "resumeQueue": {"queueName": queue},
        "unblockKey": {"queueName": queue, "orderingKey": "key"},
        "getQueueStats": {"queueNames": [queue]},
        "getWaitingDequeues": {},
        "getWorkers": {"everywhere": False},
        "getCluster": {},
        "explainJob": {"queueName": queue, "jobDescriptor": descriptors[0]},
        "getQueueOwners": {},
        "getAudit": {"request": bare(types.AuditRequest, queueName=queue)},
        "getQueueHistory": {"request": types.QueueHistoryRequest([queue], NOW_MS)},
        "getFailures": {"request": types.FailuresRequest([queue])},
        "muteFailures": {"mute": types.FailureMute(queue, "0123456789abcdef")},
        "addDeployMark": {"mark": types.DeployMark(NOW_MS, "v2", queue)},
        "startBulkRun": {
            "order": types.BulkOrder(
                queue, types.BulkAction.DELETE, bare(types.JobFilter, jobState=SUCCEEDED), forGood=True
            )
        },
        "stopBulkRun": {"queueName": queue, "runId": "0"},
        "getBulkRuns": {"queueNames": [queue]},
        "listBulkRuns": {"request": types.BulkRunsRequest([queue])},
        "getServerInfo": {},
        "deleteQueue": {"name": queue, "password": ""},
    }


@scenario("with tokens")
async def refusals(to: ScenarioRecorder) -> None:
    to.token = SECRETS["admin"]
    for queue in ("mail", "video"):
        await to.call("createQueue", name=queue)
    for caller, note in {
        "": "without a token",
        "reader": "a token that may only read",
        "producer": "a token that may only produce",
        "worker": "a token that may only work",
    }.items():
        to.token = SECRETS.get(caller)
        for method, arguments in every_call("video").items():
            await to.call(method, note, **arguments)
            if method == "startBulkRun":
                await to.do("finish_runs")
            await to.do("advance 61000")  # refusals are answered later and later, the more of them come together
    for token, note in {
        "pinlater_unknown": "an unknown token",
        SECRETS["gone"]: "a token that has expired",
        "größe": "that is no token",
        "x" * 600: "a long token",
        "": "an empty token",
    }.items():
        to.token = token
        await to.call("getQueueNames", note)
        await to.call("getServerInfo", note)
        await to.do("advance 61000")
    to.token = SECRETS["reader"]
    dry_run = types.PinLaterDequeueRequest("mail", 1, dryRun=True)
    await to.call("dequeueJobs", "a dry run of a token that may only read", request=dry_run)
    to.token = SECRETS["producer"]
    await to.call(
        "lookupJobs", "without bodies, a token that may only produce", request=types.PinLaterLookupJobRequest([GONE])
    )
    await to.call(
        "deleteQueue", "with the password, a token that may only produce", name="mail", password=ADMIN_PASSWORD
    )
    to.token = SECRETS["admin"]
    await to.call("deleteQueue", "without a password, a token that may", name="video", password="")
    await to.call("getQueueNames")


@scenario("with tokens")
async def few_queues(to: ScenarioRecorder) -> None:
    to.token = SECRETS["few"]
    await to.call("getServerInfo", "a token for some queues")
    to.token = SECRETS["admin"]
    for queue in ("mail", "mail_2", "audio", "video"):
        await to.call("createQueue", name=queue)
        await enqueue(to, queue, b"1", b"2", uniqueKey=None)
        if queue in ("mail", "video"):  # the order of the answers of several queues is not fixed
            jobs = [types.PinLaterJob(b"u", uniqueKey="key")]
            await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest(queue, jobs))
        await to.call("dequeueJobs", request=types.PinLaterDequeueRequest(queue, 1, process=5))
        order = types.BulkOrder(queue, types.BulkAction.DELETE, bare(types.JobFilter, jobState=FAILED), forGood=True)
        await to.call("startBulkRun", order=order)
        await to.do("finish_runs")
        await to.do("advance 1000")
    await to.call("pauseQueue", queueName="video")
    await to.do("write_audit")
    to.token, to.source = SECRETS["worker"], "poller"
    for queue in ("mail_2", "audio"):
        await to.call("dequeueJobs", request=types.PinLaterDequeueRequest(queue, 10))
        await to.send(
            "dequeueJobs", "waits", on=queue, request=types.PinLaterDequeueRequest(queue, 1, waitMillis=60_000)
        )
        await to.do(f"wait_for_poll {queue} 1")
    to.source = "golden"
    for caller in ("few", "reader"):
        to.token = SECRETS[caller]
        note = {"few": "a token for some queues", "reader": "a token for all queues"}[caller]
        await to.call("getQueueNames", note)
        await to.call("getQueueStats", f"of all queues, {note}", queueNames=[])
        await to.call("getWaitingDequeues", note)
        await to.call("getWorkers", note, everywhere=True)
        await to.call("getBulkRuns", f"of all queues, {note}", queueNames=[])
        await to.call("listBulkRuns", f"of all queues, {note}", request=types.BulkRunsRequest([]))
        await to.call("findUniqueKey", f"in all queues, {note}", request=types.UniqueKeyRequest([], "key"))
        await to.call("getFailures", note, request=types.FailuresRequest(["mail", "audio"]))
        await to.call("getCluster", note)
        await to.call("getQueueOwners", note)
    to.token = SECRETS["few"]
    await to.call("getAudit", "of all queues, a token for some queues", request=bare(types.AuditRequest))
    await to.call("getAudit", "a page, a token for some queues", request=types.AuditRequest(limit=3))
    await to.call("addDeployMark", "of all queues, a token for some queues", mark=types.DeployMark(NOW_MS, "v2"))
    acks = types.PinLaterJobAckRequest("video", [], [])
    await to.call(
        "dequeueJobs",
        "with acks of another queue, a token for some queues",
        request=types.PinLaterDequeueRequest("mail", 1, acks),
    )
    await to.call(
        "lookupJobs",
        "one of another queue, a token for some queues",
        request=types.PinLaterLookupJobRequest([GONE, "video:s1:p1:9"]),
    )
    await to.do("advance 61000")
    for method, arguments in every_call("video").items():
        await to.call(method, "a queue that the token is not for", **arguments)
        await to.do("advance 61000")
    to.token = SECRETS["admin"]
    for queue in ("mail_2", "audio"):
        await enqueue(to, queue, b"1")
        await to.answer(queue)
    await to.call("getAudit", "of all queues, a token for all queues", request=bare(types.AuditRequest))
    to.token = SECRETS["console"]
    await to.call("getServerInfo", "a token that may speak for others")
    for user, note in {
        "ada@example.org": "speaks for a user",
        "größe": "that is no name of a user",
        "": "speaks for no user",
    }.items():
        context = types.RequestContext("console", None, SECRETS["console"], user, "192.0.2.7")
        await to.call("pauseQueue", note, context=context, queueName="mail")
        await to.call("getQueueStats", note, context=context, queueNames=["mail"])
    context = types.RequestContext("s" * 300, None, SECRETS["operator"], "ada", "that is no address")
    await to.call("pauseQueue", "may not speak for others", context=context, queueName="audio")
    await to.do("write_audit")
    to.token = SECRETS["operator"]
    await to.call("getAudit", "who spoke for users", request=types.AuditRequest(limit=6))
    await to.call("explainJob", "paused by a token", queueName="audio", jobDescriptor="audio:s1:p1:9")


@scenario("with masks")
async def masks(to: ScenarioRecorder) -> None:
    to.token = SECRETS["admin"]
    card = '{"card": {"number": "4111", "name": "größe"}, "x": [1.50, {"card": {"Number": 7}}]}'.encode()
    names = []
    for queue in ("mail", "video"):
        await to.call("createQueue", name=queue)
        names += await enqueue(
            to, queue, card, b"{}", b"no JSON", b"", customStatus="größe", headers={"task": "send"}, uniqueKey=None
        )
        jobs = [types.PinLaterJob(card, uniqueKey="key", customStatus="[progress] 3 of 5")]
        names += (await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest(queue, jobs))).jobDescriptors
        claimed, _ = await claim(to, queue, 2)
        failed = [
            types.PinLaterJobAckInfo(claimed[0], "späť", 5_000, errorType="TypeError", errorText="no 4111"),
            types.PinLaterJobAckInfo(claimed[1], finalFailure=True, errorType="TypeError", errorText="no 17"),
        ]
        await to.call("ackJobs", request=types.PinLaterJobAckRequest(queue, [], failed))
        chosen = bare(types.JobFilter, jobState=FAILED, bodyRegexToMatch="4111", errorText="none", minAttempts=1)
        await to.call("startBulkRun", order=types.BulkOrder(queue, types.BulkAction.DELETE, chosen, forGood=True))
        await to.do("finish_runs")
        await to.do("advance 1000")
        await to.call("cancelJobs", queueName=queue, jobDescriptors=[names[-1]])
    scan, count = types.PinLaterScanJobsRequest, types.PinLaterGetJobCountRequest
    for caller in ("operator", "admin"):
        to.token = SECRETS[caller]
        note = {"operator": "bodies are masked", "admin": "bodies are shown"}[caller]
        await to.call("lookupJobs", note, request=types.PinLaterLookupJobRequest(names, True))
        await to.call("lookupJobs", f"no bodies are asked for, {note}", request=types.PinLaterLookupJobRequest(names))
        await to.call("findUniqueKey", note, request=types.UniqueKeyRequest([], "key"))
        for queue in ("mail", "video"):
            await to.call("scanJobs", note, request=scan(queue, FAILED, includeBody=True))
            await to.call("explainJob", note, queueName=queue, jobDescriptor=names[0 if queue == "mail" else 5])
            for method in ("getJobCount", "countJobs"):
                await to.call(method, f"a regex, {note}", request=count(queue, PENDING, bodyRegexToMatch="4111"))
            await to.call("scanJobs", f"a regex, {note}", request=scan(queue, PENDING, bodyRegexToMatch="4111"))
        await to.call("getFailures", note, request=types.FailuresRequest(["mail", "video"]))
        await to.call("getBulkRuns", note, queueNames=[])
        runs = (await to.call("listBulkRuns", note, request=types.BulkRunsRequest([]))).runs
        for run in runs:
            await to.call("stopBulkRun", note, queueName=run.order.queueName, runId=run.id)
    to.token = SECRETS["operator"]
    await to.call(
        "deleteJobs",
        "a regex, bodies are masked",
        request=types.PinLaterDeleteJobsRequest("mail", PENDING, bodyRegexToMatch="4"),
    )
    for field in ("bodyRegexToMatch", "errorText"):
        for queue in ("mail", "video"):
            chosen = bare(types.JobFilter, jobState=FAILED, **{field: "4111"})
            order = types.BulkOrder(queue, types.BulkAction.DELETE, chosen, forGood=True)
            await to.call("startBulkRun", f"by {field}, bodies are masked", order=order)
            await to.do("finish_runs")
    for caller, note in {"worker": "bodies are masked", "admin": "bodies are shown"}.items():
        to.token = SECRETS[caller]
        for queue in ("mail", "video"):
            request = types.PinLaterDequeueRequest
            await to.call("dequeueJobs", f"a dry run, {note}", request=request(queue, 9, dryRun=True))
    to.token = SECRETS["worker"]
    for queue in ("mail", "video"):
        await to.call("dequeueJobs", "a worker gets bodies whole", request=types.PinLaterDequeueRequest(queue, 9))
