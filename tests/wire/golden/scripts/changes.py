"""Changes of many jobs, at once and in the background, and the audit of them."""

from __future__ import annotations

from typing import Any

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types
from tests.wire.golden.scripts.claims import claim, enqueue

NOW_MS = 1_767_225_600_000
PENDING, IN_PROGRESS, SUCCEEDED, FAILED = range(4)
I32, I64 = 2**31 - 1, 2**63 - 1


async def one_of_each_state(to: ScenarioRecorder, queue: str, **more: Any) -> list[str]:
    """A job that succeeded, one that failed, one in progress and one that waits, in a new queue."""
    await to.call("createQueue", name=queue)
    names = await enqueue(to, queue, b"succeeds", b"fails", b"runs", **more)
    await claim(to, queue, 3)
    info = types.PinLaterJobAckInfo
    failed = info(names[1], finalFailure=True, errorType="TypeError", errorText="no 17")
    await to.call("ackJobs", "for what follows", request=types.PinLaterJobAckRequest(queue, [info(names[0])], [failed]))
    return [*names, *await enqueue(to, queue, b"waits", **more)]


@scenario()
async def changes(to: ScenarioRecorder) -> None:
    run = types.RunJobsRequest
    names = await one_of_each_state(to, "run")
    await to.call("runJobs", "of every state", request=run("run", [*names, "run:s1:p1:9"]))
    await to.call("runJobs", "every field", request=run("run", names[3:], NOW_MS + 10**9, 3))
    await to.call("runJobs", "no optional field", request=bare(run, queueName="run", jobDescriptors=names[3:]))
    await to.call("runJobs", "no jobs", request=run("run", []))
    await to.call("runJobs", "no attempts", request=run("run", names, attemptsToAllow=0))
    await to.call("runJobs", "the highest time", request=run("run", names, I64))
    await to.call("runJobs", "that is no descriptor", request=run("run", ["größe"]))
    await to.call("runJobs", "there is no such queue", request=run("nowhere", []))

    change = types.ChangePriorityRequest
    names = await one_of_each_state(to, "change")
    moved = await to.call("changePriority", "of every state", request=change("change", [*names, "change:s1:p1:9"], 3))
    await to.call(
        "changePriority",
        "the same again",
        request=change("change", [one.movedTo or one.descriptor for one in moved], 3),
    )
    await to.call("changePriority", "no jobs", request=change("change", [], 1))
    await to.call("changePriority", "no such priority", request=change("change", names, 4))
    await to.call("changePriority", "that is no descriptor", request=change("change", ["größe"], 1))
    await to.call("changePriority", "there is no such queue", request=change("nowhere", [], 1))

    names = await one_of_each_state(to, "cancel")
    await to.call("cancelJobs", "of every state", queueName="cancel", jobDescriptors=[*names, "cancel:s1:p1:9"])
    await to.call("cancelJobs", "no jobs", queueName="cancel", jobDescriptors=[])
    await to.call("cancelJobs", "that is no descriptor", queueName="cancel", jobDescriptors=["größe"])
    await to.call("cancelJobs", "there is no such queue", queueName="nowhere", jobDescriptors=[])

    retry = types.PinLaterRetryFailedJobsRequest
    await to.call("retryFailedJobs", "leaves cancelled jobs", request=retry("cancel", skipCancelled=True))
    await to.call("retryFailedJobs", "the defaults", request=retry("cancel"))
    await to.call("retryFailedJobs", "no optional field", request=bare(retry, queueName="cancel"))
    await to.call("retryFailedJobs", "every field", request=retry("cancel", 1, 5, NOW_MS + 10**9, 7, False))
    await to.call("retryFailedJobs", "no jobs", request=retry("cancel", limit=0))
    await to.call("retryFailedJobs", "fewer than no jobs", request=retry("cancel", limit=-1))
    await to.call("retryFailedJobs", "no attempts", request=retry("cancel", attemptsToAllow=0))
    await to.call("retryFailedJobs", "no such priority", request=retry("cancel", priority=9))
    await to.call("retryFailedJobs", "there is no such queue", request=retry("nowhere"))

    names = await one_of_each_state(to, "delete", priority=2)
    delete = types.PinLaterDeleteJobsRequest
    await to.call("deleteJobs", "every field", request=delete("delete", PENDING, 2, "^w", 5))
    await to.call("deleteJobs", "the defaults", request=delete("delete", PENDING))
    await to.call("deleteJobs", "no optional field", request=bare(delete, queueName="delete", jobState=FAILED))
    await to.call("deleteJobs", "no jobs", request=delete("delete", SUCCEEDED, limit=0))
    await to.call("deleteJobs", "a regex that is none", request=delete("delete", PENDING, bodyRegexToMatch="("))
    await to.call("deleteJobs", "no such priority", request=delete("delete", PENDING, 9))
    await to.call("deleteJobs", "no such state", request=delete("delete", 9))
    await to.call("deleteJobs", "there is no such queue", request=delete("nowhere", PENDING))
    await to.call(
        "deleteJobsByDescriptor", "of every state", queueName="delete", jobDescriptors=[*names, "delete:s1:p1:9"]
    )
    await to.call("deleteJobsByDescriptor", "the same again", queueName="delete", jobDescriptors=names)
    await to.call("deleteJobsByDescriptor", "no jobs", queueName="delete", jobDescriptors=[])
    await to.call("deleteJobsByDescriptor", "that is no descriptor", queueName="delete", jobDescriptors=["größe"])
    await to.call("deleteJobsByDescriptor", "there is no such queue", queueName="nowhere", jobDescriptors=[])
    names = await one_of_each_state(to, "delete", priority=2)
    await to.call("runJobs", "only failed ones", request=types.RunJobsRequest("delete", names, onlyFailed=True))
    in_state: dict[str, Any] = {"queueName": "delete", "jobDescriptors": names}
    await to.call("deleteJobsInState", "of every state", **in_state, state=SUCCEEDED)
    await to.call("deleteJobsInState", "no such state", **in_state, state=9)


@scenario()
async def bulk_runs(to: ScenarioRecorder) -> None:
    for queue in ("mail", "audio"):
        await to.call("createQueue", name=queue)
    await to.call("getBulkRuns", "there are none", queueNames=[])
    await to.call("listBulkRuns", "there are none", request=types.BulkRunsRequest([]))
    await enqueue(to, "mail", b"1", b"2", b"3", headers={"task": "send", "ü": "1"})
    order, chosen, action = types.BulkOrder, types.JobFilter, types.BulkAction
    delete = await to.call(
        "startBulkRun", "deletes", order=order("mail", action.DELETE, bare(chosen, jobState=PENDING))
    )
    await to.do("finish_runs")
    await to.do("advance 1000")
    await to.call("startBulkRun", "restores", order=order("mail", action.RESTORE, chosen(PENDING), undoes=delete.id))
    await to.do("finish_runs")
    await to.do("advance 1000")
    everything = chosen(FAILED, 2, "a.*b", ["send"], {"ü": "1"}, "größe", 3, 1, 2**40, "0123456789abcdef", True)
    await to.call(
        "startBulkRun", "every field", order=order("mail", action.RETRY, everything, 2, 2.5, False, None, 2**40)
    )
    await to.do("finish_runs")
    await to.do("advance 1000")
    everything.skipCancelled = None
    await to.call("startBulkRun", "for good", order=order("mail", action.DELETE, everything, forGood=True))
    await to.do("finish_runs")
    await to.do("advance 1000")
    slow = order("mail", action.CANCEL, bare(chosen, jobState=PENDING), jobsPerSecond=0.1, expectedJobs=3)
    slow = await to.call("startBulkRun", "slow", order=slow)
    await to.call("getBulkRuns", "one has just begun", queueNames=["mail"])
    await to.do("wait_for_pause")
    await to.do("advance 5000")
    await to.do("wait_for_news")
    await to.call("getBulkRuns", "one is under way", queueNames=["mail"])
    await to.call("stopBulkRun", "one that is under way", queueName="mail", runId=slow.id)
    await to.call("stopBulkRun", "one that has ended", queueName="mail", runId=delete.id)
    await to.call("stopBulkRun", "there is no such run", queueName="mail", runId="größe")
    await to.call("stopBulkRun", "there is no such queue", queueName="nowhere", runId=delete.id)
    await to.call("getBulkRuns", "of all queues", queueNames=[])
    await to.call("getBulkRuns", "of a queue without", queueNames=["audio"])
    await to.call("getBulkRuns", "there is no such queue", queueNames=["nowhere"])
    await to.call("listBulkRuns", "of all queues", request=types.BulkRunsRequest([]))
    await to.call("listBulkRuns", "of some queues", request=types.BulkRunsRequest(["mail", "audio"]))
    await to.call("listBulkRuns", "there is no such queue", request=types.BulkRunsRequest(["nowhere"]))
    for note, wrong in {
        "no such action": order("mail", 9, chosen(PENDING)),
        "no such state": order("mail", action.DELETE, chosen(9)),
        "a retry of jobs that wait": order("mail", action.RETRY, chosen(PENDING)),
        "no attempts": order("mail", action.RETRY, chosen(FAILED), 0),
        "no speed": order("mail", action.DELETE, chosen(FAILED), 1, 0.0),
        "a regex that is none": order("mail", action.DELETE, chosen(FAILED, bodyRegexToMatch="(")),
        "an undo of no run": order("mail", action.RESTORE, chosen(FAILED)),
        "there is no such run": order("mail", action.RESTORE, chosen(FAILED), undoes="0123456789abcdef"),
        "no such priority": order("mail", action.DELETE, chosen(FAILED, 9)),
        "there is no such queue": order("nowhere", action.DELETE, chosen(FAILED)),
    }.items():
        await to.call("startBulkRun", note, order=wrong)


@scenario()
async def audit(to: ScenarioRecorder) -> None:
    request = types.AuditRequest
    await to.call("getAudit", "there is none", request=request())
    person = types.RequestContext("wörker", "request-7", None, "ada", "192.0.2.7")
    await to.call("createQueue", context=person, name="mail")
    await to.call("createQueue", name="päckchen")
    names = await enqueue(to, "mail", b"1", b"2")
    await to.do("advance 1000")
    await to.call("pauseQueue", queueName="mail")
    await to.call("configureQueue", queueName="mail", config=types.QueueConfig(2.5, 1_000, burst=3))
    await to.call("cancelJobs", queueName="mail", jobDescriptors=[names[0]])
    await to.call("changePriority", request=types.ChangePriorityRequest("mail", [names[1]], 2))
    await to.do("advance 1000")
    await to.call("deleteJobs", request=types.PinLaterDeleteJobsRequest("mail", PENDING, 2, "größe", 5))
    await to.call("addDeployMark", mark=types.DeployMark(NOW_MS, "v2 ü"))
    await to.call("deleteQueue", "a wrong password", name="mail", password="no")
    await to.call("getAudit", "of what is not stored yet", request=request())
    await to.do("write_audit")
    await to.call("getAudit", "no optional field", request=bare(request))
    page = await to.call("getAudit", "the first page", request=request(limit=2))
    await to.call("getAudit", "the next page", request=request(limit=2, continuation=page.continuation))
    await to.call("getAudit", "every field", request=request("mail", "no token", "pauseQueue", 1, 2**42, 5))
    await to.call("getAudit", "of a queue", request=request("mail"))
    await to.call("getAudit", "of an operation that no caller used", request=request(operation="runJobs"))
    await to.call("getAudit", "of an unknown operation", request=request(operation="größe"))
    await to.call(
        "getAudit",
        "between two times",
        request=request(sinceTimestampMillis=NOW_MS + 1_000, untilTimestampMillis=NOW_MS + 2_000),
    )
    await to.call("getAudit", "no such continuation", request=request(continuation="größe"))
    await to.call("getAudit", "no entries", request=request(limit=0))
    await to.call("getAudit", "too many entries", request=request(limit=I32))
    await to.call(
        "getAudit", "the extremes of time", request=request(sinceTimestampMillis=-(2**63), untilTimestampMillis=I64)
    )
