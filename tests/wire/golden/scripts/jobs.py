"""Enqueues."""

from __future__ import annotations

from typing import Any

from tests.wire.golden.record import ScenarioRecorder, bare, scenario, types

NOW_MS = 1_767_225_600_000
I32, I64 = 2**31 - 1, 2**63 - 1
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def full_job(**changes: object) -> object:
    """A job with every field."""
    fields = {
        "body": b"\x00\xff\xfe body",
        "priority": 3,
        "runAfterTimestampMillis": NOW_MS + 5_000,
        "numAttemptsAllowed": 7,
        "customStatus": "grün",
        "headers": {"traceparent": TRACE, "typ": "ü 😀"},
        "uniqueKey": "order-ß",
        "uniqueScope": types.UniqueScope.TIME,
        "uniqueForMillis": 60_000,
        "claimTimeoutMillis": 30_000,
        "expiresAtMillis": NOW_MS + 10**9,
    }
    return types.PinLaterJob(**{**fields, **changes})


@scenario()
async def enqueues(to: ScenarioRecorder) -> None:
    request, job = types.PinLaterEnqueueRequest, types.PinLaterJob

    async def enqueue(note: str, *jobs: object, **more: object) -> list[str]:
        answer = await to.call("enqueueJobs", note, request=request("mail", list(jobs), **more))
        return list(getattr(answer, "jobDescriptors", ()))

    await to.call("enqueueJobs", "there is no such queue", request=request("mail", [job(b"1")]))
    await to.call("createQueue", name="mail")
    names = await enqueue("the defaults, as the compiler's classes send them", job(b"1"))
    names += await enqueue("no optional field", bare(job, body=b"2"))
    names += await enqueue("every field", full_job())
    names += await enqueue("every field of the request too", full_job(uniqueKey="u2"), requestKey="k1", repeated=True)
    await enqueue("no jobs")
    await enqueue("no jobs, with a request key", requestKey="k0")
    names += await enqueue("several priorities", job(b"p3", 3), job(b"p1", 1), job(b"p2", 2))
    names += await enqueue("an empty body", job(b""))
    names += await enqueue("a body that is no UTF-8", job(bytes(range(256))))
    names += await enqueue("a body outside of ASCII", job("größe 😀 \u2028".encode()))
    names += await enqueue("an empty header and an empty status", job(b"h", headers={"": ""}, customStatus=""))
    names += await enqueue("no headers in the map", job(b"h", headers={}))
    names += await enqueue("a status beyond its bound", job(b"s", customStatus="é" * 5_001))
    await to.call("lookupJobs", "all of them", request=types.PinLaterLookupJobRequest(names, True))

    for scope, name in ((0, "PENDING"), (1, "UNFINISHED"), (2, "TIME")):
        key = {"uniqueKey": f"key {scope}", "uniqueScope": scope, "uniqueForMillis": 1_000 if scope == 2 else None}
        await enqueue(f"a unique key, scope {name}", job(b"u", **key))
        await enqueue(f"a key that is taken, scope {name}", job(b"x"), job(b"u", **key), job(b"u", **key))
    await enqueue("a unique key without a scope", bare(job, body=b"u", uniqueKey="key 3"))
    await enqueue("an empty unique key", job(b"u", uniqueKey=""))
    await enqueue("scope TIME without a time", job(b"u", uniqueKey="key 4", uniqueScope=2))
    await enqueue("no such scope", job(b"u", uniqueKey="key 5", uniqueScope=9))
    await enqueue("one key twice in a request", job(b"a", uniqueKey="twice"), job(b"b", uniqueKey="twice"))

    await enqueue("a request key", job(b"k"), requestKey="k2")
    await enqueue("the same again", job(b"k"), requestKey="k2")
    await enqueue("the same again, as a repeat", job(b"k"), requestKey="k2", repeated=True)
    await enqueue("the same key with other jobs", job(b"other"), requestKey="k2")
    await to.do("advance 121000")
    await enqueue("the key after its time", job(b"other"), requestKey="k2")

    wrong: dict[str, dict[str, Any]] = {
        "priority 0": {"priority": 0},
        "priority 4": {"priority": 4},
        "the lowest priority": {"priority": -128},
        "the highest priority": {"priority": 127},
        "no attempts": {"numAttemptsAllowed": 0},
        "fewer than no attempts": {"numAttemptsAllowed": -(2**31)},
        "most attempts": {"numAttemptsAllowed": I32},
        "a due time before all": {"runAfterTimestampMillis": -(2**63)},
        "a due time past all": {"runAfterTimestampMillis": I64},
        "no time for a claim": {"claimTimeoutMillis": 0},
        "the longest claim": {"claimTimeoutMillis": I64},
        "expired already": {"expiresAtMillis": NOW_MS - 1},
        "expiry past all": {"expiresAtMillis": I64},
        "a unique key of no time": {"uniqueKey": "z", "uniqueScope": 2, "uniqueForMillis": 0},
        "a long header": {"headers": {"x": "y" * 20_000}},
        "a long unique key": {"uniqueKey": "y" * 257},
    }
    for note, fields in wrong.items():
        await enqueue(note, job(b"x", **fields))


@scenario("with low bounds")
async def low_bounds(to: ScenarioRecorder) -> None:
    request, job = types.PinLaterEnqueueRequest, types.PinLaterJob
    await to.call("getServerInfo", "with its bounds")
    for queue in ("mail", "second", "third"):
        await to.call("createQueue", name=queue)
    await to.call("enqueueJobs", "a body that is too long", request=request("mail", [job(b"1"), job(b"x" * 65)]))
    await to.call("enqueueJobs", "too many jobs", request=request("mail", [job(b"1")] * 4))
    await to.call(
        "enqueueJobs", "headers that are too long", request=request("mail", [job(b"1", headers={"k": "v" * 50})])
    )
    await to.call(
        "enqueueJobs", "a unique key that is too long", request=request("mail", [job(b"1", uniqueKey="123456789")])
    )
    names = (await to.call("enqueueJobs", request=request("mail", [job(b"1"), job(b"2")]))).jobDescriptors
    await to.call("enqueueJobs", "more than the backlog may have", request=request("mail", [job(b"1")] * 3))
    await to.call("lookupJobs", "too many", request=types.PinLaterLookupJobRequest(names * 2))
    await to.call("cancelJobs", "too many", queueName="mail", jobDescriptors=names * 2)
    count = types.PinLaterGetJobCountRequest("mail", 0, bodyRegexToMatch="x" * 21)
    await to.call("getJobCount", "a regex that is too long", request=count)
    status = "s" * 400
    names = []
    for _ in range(3):
        answer = await to.call("enqueueJobs", request=request("second", [job(b"1", customStatus=status)]))
        names += answer.jobDescriptors
    await to.call("scanJobs", "as many jobs as an answer may have", request=types.PinLaterScanJobsRequest("second", 0))
    await to.call("lookupJobs", "an answer that is too long", request=types.PinLaterLookupJobRequest(names))
    await to.raw(
        (1_025).to_bytes(4, "big") + to.made("getServerInfo").ljust(1_025), "a frame that is too long", on="long"
    )
    await to.answer("long")
    await to.closed("long")


@scenario()
async def ordered_jobs(to: ScenarioRecorder) -> None:
    """Ordering keys."""
    request, job = types.PinLaterEnqueueRequest, types.PinLaterJob

    async def enqueue(note: str, *jobs: object, **more: object) -> list[str]:
        answer = await to.call("enqueueJobs", note, request=request("mail", list(jobs), **more))
        return list(getattr(answer, "jobDescriptors", ()))

    await to.call("createQueue", name="mail")
    names = await enqueue("two of a key", *[job(body, orderingKey="customer ü") for body in (b"1", b"2")])
    names += await enqueue("with every other field", full_job(orderingKey="other", runAfterTimestampMillis=NOW_MS))
    await to.call("lookupJobs", "all of them", request=types.PinLaterLookupJobRequest(names, True))
    claim = types.PinLaterDequeueRequest("mail", 10)
    await to.call("dequeueJobs", "the first of each key", request=claim)
    await to.call("runJobs", "one behind another", request=types.RunJobsRequest("mail", [names[1]]))
    ack = types.PinLaterJobAckRequest("mail", [types.PinLaterJobAckInfo(names[0])], [])
    await to.call("ackDequeuedJobs", request=ack)
    await to.call("dequeueJobs", "the next one", request=claim)
    for note, key in (("an empty key", ""), ("a key that is too long", "é" * 65)):
        await enqueue(note, job(b"x", orderingKey=key))
    await enqueue("a request key", job(b"k", orderingKey="k"), requestKey="k")
    await enqueue("the same without the ordering key", job(b"k"), requestKey="k")
    names = await enqueue("two more of a key", *[job(body, orderingKey="two") for body in (b"1", b"2")])
    await to.call("explainJob", "one behind another", queueName="mail", jobDescriptor=names[1])
    await to.call("getQueueStats", "one behind another", queueNames=["mail"])
