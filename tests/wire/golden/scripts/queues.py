"""Queues: their names, settings, statistics and end."""

from __future__ import annotations

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types
from tests.wire.golden.servers import ADMIN_PASSWORD

I32, I64 = 2**31 - 1, 2**63 - 1


@scenario()
async def queues(to: ScenarioRecorder) -> None:
    await to.call("getServerInfo")
    await to.call(
        "getServerInfo",
        "every field of the context",
        context=types.RequestContext("gölden", "request-1", "", "ada@example.org", "192.0.2.7"),
    )
    await to.call("getQueueNames", "there are none")
    await to.call("getQueueStats", "of all, of which there are none", queueNames=[])
    await to.call("createQueue", "a new one", name="mail")
    await to.call("createQueue", "one that exists", name="mail")
    await to.call("createQueue", "the shortest name", name="a")
    await to.call("createQueue", "a name with a hyphen", name="mail-2")
    await to.call("createQueue", "no name", name="")
    await to.call("createQueue", "a name outside of ASCII", name="päckchen")
    await to.call("createQueue", "a name that is too long", name="x" * 300)
    await to.call("createQueue", "the longest name", name="y" * 100)
    await to.call("getQueueNames")
    await to.call("getQueueConfig", "nothing is configured", queueName="mail")
    await to.call("getSettingsInForce", "all come from the server", queueName="mail")
    every = types.QueueConfig(2.5, 30_000, 1_000, 2_000, 3_000, 4, 5_000, True, 7)
    every.maxInHandPerKey, every.retryPlace, every.afterFailure = 2, "to_back", "stop"
    await to.call("configureQueue", "every field", queueName="mail", config=every)
    await to.call("getQueueConfig", "all is configured", queueName="mail")
    await to.call("getSettingsInForce", "all come from the queue", queueName="mail")
    await to.call("configureQueue", "some fields", queueName="mail", config=bare(types.QueueConfig, defaultAttempts=9))
    await to.call("getQueueConfig", "the others are unset again", queueName="mail")
    await to.call("getSettingsInForce", "one comes from the queue", queueName="mail")
    await to.call("configureQueue", "no field", queueName="mail", config=bare(types.QueueConfig))
    await to.call("getQueueConfig", "as at the beginning", queueName="mail")
    for note, config in {
        "a limit below 0": bare(types.QueueConfig, maxJobsPerSecond=-0.5),
        "a limit that is not a number": bare(types.QueueConfig, maxJobsPerSecond=float("nan")),
        "a limit without end": bare(types.QueueConfig, maxJobsPerSecond=float("inf")),
        "the lowest number": bare(types.QueueConfig, claimTimeoutMillis=-(2**63)),
        "the highest number": bare(types.QueueConfig, maxBacklog=I64),
        "no attempts": bare(types.QueueConfig, defaultAttempts=0),
        "no burst": bare(types.QueueConfig, burst=0),
        "one partition": bare(types.QueueConfig, partitions=1),
        "more partitions than shards": bare(types.QueueConfig, partitions=2),
    }.items():
        await to.call("configureQueue", note, queueName="a", config=config)
        await to.call("getQueueConfig", f"after {note}", queueName="a")
    await to.call("pauseQueue", queueName="mail")
    await to.call("pauseQueue", "one that is paused", queueName="mail")
    await to.call("getQueueConfig", "paused", queueName="mail")
    await to.call("getQueueStats", "paused", queueNames=["mail"])
    await to.call("resumeQueue", queueName="mail")
    await to.call("resumeQueue", "one that is not paused", queueName="mail")
    await to.call("getQueueConfig", "not paused", queueName="mail")
    await to.call("unblockKey", "that no job has stopped", queueName="mail", orderingKey="größe")
    for method, more in {
        "configureQueue": {"config": bare(types.QueueConfig)},
        "getQueueConfig": {},
        "getSettingsInForce": {},
        "pauseQueue": {},
        "resumeQueue": {},
        "unblockKey": {"orderingKey": "key"},
    }.items():
        await to.call(method, "there is no such queue", queueName="nowhere", **more)
    await to.call("getQueueStats", "there is no such queue", queueNames=["nowhere"])
    await to.call("getQueueStats", "one of them does not exist", queueNames=["mail", "nowhere"])
    await to.call("deleteQueue", "a wrong password", name="mail", password="open sesame")
    await to.call("deleteQueue", "no password", name="mail", password="")
    await to.call("deleteQueue", "there is no such queue", name="nowhere", password=ADMIN_PASSWORD)
    await to.call("deleteQueue", name="mail", password=ADMIN_PASSWORD)
    await to.call("getQueueConfig", "of a deleted queue", queueName="mail")
    await to.call("getQueueNames", "without it")


@scenario()
async def queues_of_tasks(to: ScenarioRecorder) -> None:
    await to.call("ensureQueue", "a new one", name="mail")
    await to.call("ensureQueue", "one that exists", name="mail")
    await to.call("ensureQueue", "a name with a hyphen", name="mail-2")
    await to.call("deleteQueue", name="mail", password=ADMIN_PASSWORD)
    await to.call("ensureQueue", "one that was deleted", name="mail")
    await to.call("createQueue", "one that was deleted", name="mail")
    await to.call("ensureQueue", "one that exists again", name="mail")
    await to.call("deleteQueue", "again", name="mail", password=ADMIN_PASSWORD)
    await to.do("advance 86400000")
    await to.call("ensureQueue", "one that was deleted a day ago", name="mail")
    await to.do("advance 10")
    await to.call("ensureQueue", "one that was deleted more than a day ago", name="mail")
    await to.call("getQueueNames")


@scenario()
async def ordered_queues(to: ScenarioRecorder) -> None:
    await to.call("createQueue", name="mail")
    await to.call("createOrderedQueue", "a new one", name="bookings")
    await to.call("createOrderedQueue", "one that exists", name="bookings")
    await to.call("createQueue", "one that exists", name="bookings")
    await to.call("getQueueConfig", "of an ordered one", queueName="bookings")
    await to.call("createOrderedQueue", "one that is not ordered", name="mail")
    await to.call("createOrderedQueue", "a name with a hyphen", name="bookings-2")
    jobs = [types.PinLaterJob(body=b"1", orderingKey="key")]
    request = types.PinLaterEnqueueRequest(queueName="bookings", jobs=jobs)
    await to.call("enqueueJobs", "a key of its own", request=request)


@scenario("without a password")
async def queues_without_a_password(to: ScenarioRecorder) -> None:
    await to.call("getServerInfo", "it does not say that it deletes queues")
    await to.call("createQueue", name="mail")
    await to.call("deleteQueue", "a password", name="mail", password=ADMIN_PASSWORD)


@scenario()
async def statistics(to: ScenarioRecorder) -> None:
    for queue in ("mail", "empty"):
        await to.call("createQueue", name=queue)
    await to.do("sample")
    now_ms = 1_767_225_600_000
    jobs = [
        types.PinLaterJob(body=b"1"),
        types.PinLaterJob(body=b"2", priority=2),
        types.PinLaterJob(body=b"3", priority=3, runAfterTimestampMillis=now_ms + 10**9),
        types.PinLaterJob(body=b"4"),
        types.PinLaterJob(body=b"5"),
        types.PinLaterJob(body=b"6", numAttemptsAllowed=1),
    ]
    await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("mail", jobs))
    await to.do("advance 10000")
    claimed = await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("mail", 3))
    first, second, third = claimed.jobOrder
    await to.do("advance 500")
    info = types.PinLaterJobAckInfo
    await to.call(
        "ackJobs",
        request=types.PinLaterJobAckRequest(
            "mail",
            [info(first, claimToken=claimed.jobMetadata[first].claimToken)],
            [info(second), info(third, finalFailure=True)],
        ),
    )
    await to.do("advance 49500")
    await to.do("sample")
    await to.call("getQueueStats", "of all queues", queueNames=[])
    await to.call("getQueueStats", "of one with jobs of three priorities", queueNames=["mail"])
    await to.call("getQueueStats", "of one without jobs", queueNames=["empty"])
    await to.call("configureQueue", "a limit", queueName="mail", config=bare(types.QueueConfig, maxJobsPerSecond=1.5))
    await to.call("getQueueStats", "of one with a limit", queueNames=["mail"])
    await to.do("advance 60000")
    await to.do("sample")
    history = types.QueueHistoryRequest
    await to.call("getQueueHistory", "all fields", request=history(["mail"], now_ms, now_ms + 600_000, 60))
    await to.call("getQueueHistory", "required fields only", request=history(["mail", "empty"], now_ms))
    await to.call("getQueueHistory", "a long step", request=history(["mail"], now_ms - 10**9, None, 3600))
    await to.call("getQueueHistory", "one of the queues does not exist", request=history(["mail", "nowhere"], now_ms))
    await to.call("getQueueHistory", "there is no such queue", request=history(["nowhere"], now_ms))
    await to.call("getQueueHistory", "of no queue", request=history([], now_ms))
    await to.call("getQueueHistory", "no such step", request=history(["mail"], now_ms, None, 61))
    await to.call("getQueueHistory", "it ends before it begins", request=history(["mail"], now_ms, now_ms - 1))
    await to.call("getQueueHistory", "the lowest time", request=history(["mail"], -(2**63)))
    await to.call("getQueueHistory", "the highest time", request=history(["mail"], I64, I64))
    mark = types.DeployMark
    await to.call("addDeployMark", "of all queues", mark=mark(now_ms + 1, "v2.0 – größer"))
    await to.call("addDeployMark", "of a queue", mark=mark(now_ms + 2, "v2.1", "mail"))
    await to.call("addDeployMark", "the same again", mark=mark(now_ms + 2, "v2.1", "mail"))
    await to.call("addDeployMark", "of a queue that does not exist", mark=mark(now_ms, "v2.1", "nowhere"))
    await to.call("addDeployMark", "without a text", mark=mark(now_ms, ""))
    await to.call("addDeployMark", "a text that is too long", mark=mark(now_ms, "x" * 201))
    await to.call("addDeployMark", "a text that is not printable", mark=mark(now_ms, "a\nb"))
    await to.call("addDeployMark", "long ago", mark=mark(1, "v0"))
    await to.call("getQueueHistory", "with marks", request=history(["mail"], now_ms))
    await to.call("getQueueHistory", "with the marks of all queues", request=history(["empty"], now_ms))
    failures = types.FailuresRequest
    groups = (await to.call("getFailures", "of two queues", request=failures(["mail", "empty"]))).groups
    await to.call("getFailures", "of no queue", request=failures([]))
    await to.call("getFailures", "of a queue without", request=failures(["empty"]))
    await to.call("getFailures", "one of the queues does not exist", request=failures(["mail", "nowhere"]))
    await to.call("getFailures", "there is no such queue", request=failures(["nowhere"]))
    mute = types.FailureMute
    name = groups[0].name
    await to.call("muteFailures", "until a time", mute=mute("mail", name, now_ms + 10**7))
    await to.call("getFailures", "muted", request=failures(["mail"]))
    await to.call("muteFailures", "for as long as possible", mute=mute("mail", name))
    await to.call("getFailures", "muted for long", request=failures(["mail"]))
    await to.call("muteFailures", "no longer", mute=mute("mail", name, 1))
    await to.call("getFailures", "not muted", request=failures(["mail"]))
    await to.call("muteFailures", "there is no such group", mute=mute("mail", "0123456789abcdef"))
    await to.call("muteFailures", "that is no name of a group", mute=mute("mail", "ü"))
    await to.call("muteFailures", "there is no such queue", mute=mute("nowhere", name))
    begin_ms = now_ms + 120_000
    jobs = [
        types.PinLaterJob(body=b"7", claimTimeoutMillis=2_000),
        types.PinLaterJob(body=b"8"),
        types.PinLaterJob(body=b"9", expiresAtMillis=begin_ms + 1),
    ]
    await to.call("createQueue", name="busy")
    await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("busy", jobs))
    await to.call("dequeueJobs", request=types.PinLaterDequeueRequest("busy", 2))
    await to.do("advance 2001")
    await to.do("sweep")
    await to.call("dequeueJobs", "one that has timed out", request=types.PinLaterDequeueRequest("busy", 1))
    await to.do("advance 57999")
    await to.do("sample")
    request = history(["busy"], begin_ms, None, 60)
    await to.call("getQueueHistory", "a time-out, an expiry and a claim that lasts", request=request)
    waiting = types.PinLaterJob(b"x", runAfterTimestampMillis=begin_ms + 10**9)
    answer = await to.call("enqueueJobs", request=types.PinLaterEnqueueRequest("busy", [waiting]))
    await to.send(
        "dequeueJobs", "waits", on="worker", request=types.PinLaterDequeueRequest("busy", 1, waitMillis=60_000)
    )
    await to.do("wait_for_poll busy 1")
    name = answer.jobDescriptors[0]
    await to.call("explainJob", "of a busy queue", queueName="busy", jobDescriptor=name)
    await to.do("drain")
    await to.answer("worker")
