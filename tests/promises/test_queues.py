"""Queues: createQueue, deleteQueue, getQueueNames, and what every method says of a queue that is not there."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Awaitable, Callable

import pytest

from pinlater.domain.passwords import hash_password
from tests.promises.conftest import PASSWORD
from tests.promises.running_server import RunningServer
from tests.promises.wire import RefusedOnWire, Wire, ack_request, ttypes

Start = Callable[..., Awaitable[RunningServer]]
SALT_OF_THE_ORIGINAL = "VHzMjY2Kb9BYlyrbtpyFvnHVPZAvB5Rm"


async def refused(call: Awaitable[object]) -> RefusedOnWire:
    """The refusal of a call that must be refused."""
    with pytest.raises(RefusedOnWire) as refusal:
        await call
    return refusal.value


async def test_a_name_is_ascii_letters_digits_and_underscore(wire: Wire) -> None:
    name = "aZ09_"
    await wire.create(name)
    await wire.create("_")
    assert {name, "_"} <= await wire.call("getQueueNames")
    for bad in set(string.punctuation) - {"_"} | {" ", "\t", "é", "١", "Ａ", "\u200b"}:
        error = await refused(wire.create(f"a{bad}"))
        assert (error.code, error.message) == (410, f"Invalid queue name: a{bad}")


async def test_only_create_queue_looks_at_the_name(wire: Wire) -> None:
    for name in ("no such name", "", "é"):
        assert (await refused(wire.enqueue(name, b"x"))).code == 413
        await wire.call("deleteQueue", name=name, password=PASSWORD)


async def test_up_to_fifty_characters_work_and_sixty_five_are_too_long(wire: Wire) -> None:
    await wire.create("q" * 50)
    [descriptor] = await wire.enqueue("q" * 50, b"x")
    assert (await wire.job(descriptor)).body == b"x"
    assert (await refused(wire.create("q" * 65))).code == 411


async def test_names_are_case_sensitive(wire: Wire) -> None:
    await wire.create("Case")
    await wire.create("case")
    await wire.enqueue("Case", b"x")
    assert (await wire.count("Case"), await wire.count("case")) == (1, 0)


async def test_creating_a_queue_that_exists_changes_nothing(wire: Wire, queue: str) -> None:
    await wire.configure(queue, defaultAttempts=7)
    await wire.enqueue(queue, b"x")
    await wire.create(queue)
    assert await wire.count(queue) == 1
    assert (await wire.call("getQueueConfig", queueName=queue)).defaultAttempts == 7


async def test_deleting_a_queue_needs_the_admin_password(wire: Wire, queue: str) -> None:
    for wrong in ("", "wrong", PASSWORD.upper(), PASSWORD + " ", "\0", "x" * 2**20):
        error = await refused(wire.call("deleteQueue", name=queue, password=wrong))
        assert (error.code, error.message) == (403, "Invalid admin password.")
    [descriptor] = await wire.enqueue(queue, b"x")
    await wire.call("deleteQueue", name=queue, password=PASSWORD)
    assert queue not in await wire.call("getQueueNames")
    assert await wire.lookup(descriptor) == {}
    await wire.create(queue)
    assert await wire.count(queue) == 0


async def test_deleting_a_missing_queue_does_nothing(wire: Wire) -> None:
    await wire.call("deleteQueue", name="never_made", password=PASSWORD)
    assert (await refused(wire.call("deleteQueue", name="never_made", password="no"))).code == 403


async def test_without_a_configured_hash_every_password_is_refused(start: Start) -> None:
    wire = await (await start()).connect()
    for password in ("", "None", "null", SALT_OF_THE_ORIGINAL, hashlib.sha256(b"").hexdigest()):
        assert (await refused(wire.call("deleteQueue", name="q", password=password))).code == 403


async def test_the_originals_form_of_the_hash_is_accepted(start: Start) -> None:
    stored = hashlib.sha256(f"{PASSWORD}{SALT_OF_THE_ORIGINAL}".encode()).hexdigest()
    wire = await (await start(admin_password_hash=stored)).connect()
    assert (await refused(wire.call("deleteQueue", name="q", password=stored))).code == 403
    await wire.call("deleteQueue", name="q", password=PASSWORD)


def test_new_hashes_have_a_salt_of_their_own() -> None:
    assert hash_password(PASSWORD) != hash_password(PASSWORD)


async def test_every_method_that_names_a_missing_queue_says_so(wire: Wire) -> None:
    name = "missing"
    checkpoint = ttypes.PinLaterCheckpointJobsRequest(name, [ttypes.PinLaterCheckpointJobRequest(f"{name}:s1:p1:1")])
    claims = [ttypes.ClaimRef(f"{name}:s1:p1:1", "token")]
    calls = {
        "enqueueJobs": {"request": ttypes.PinLaterEnqueueRequest(name, [ttypes.PinLaterJob(b"x")])},
        "dequeueJobs": {"request": ttypes.PinLaterDequeueRequest(name, 1)},
        "ackDequeuedJobs": {"request": ack_request(name, f"{name}:s1:p1:1")},
        "ackJobs": {"request": ack_request(name)},
        "checkpointJobs": {"request": checkpoint},
        "checkpointJobsFenced": {"request": checkpoint},
        "getJobCount": {"request": ttypes.PinLaterGetJobCountRequest(name, 0)},
        "runJobs": {"request": ttypes.RunJobsRequest(name, [])},
        "changePriority": {"request": ttypes.ChangePriorityRequest(name, [], 1)},
        "countJobs": {"request": ttypes.PinLaterGetJobCountRequest(name, 0)},
        "getSettingsInForce": {"queueName": name},
        "scanJobs": {"request": ttypes.PinLaterScanJobsRequest(name, 0)},
        "retryFailedJobs": {"request": ttypes.PinLaterRetryFailedJobsRequest(name)},
        "deleteJobs": {"request": ttypes.PinLaterDeleteJobsRequest(name, 0)},
        "heartbeatClaims": {"request": ttypes.ClaimsRequest(name, claims)},
        "releaseJobs": {"request": ttypes.ReleaseRequest(name, claims)},
        "cancelJobs": {"queueName": name, "jobDescriptors": []},
        "deleteJobsByDescriptor": {"queueName": name, "jobDescriptors": []},
        "deleteJobsInState": {"queueName": name, "jobDescriptors": [], "state": 3},
        "configureQueue": {"queueName": name, "config": ttypes.QueueConfig()},
        "getQueueConfig": {"queueName": name},
        "pauseQueue": {"queueName": name},
        "unblockKey": {"queueName": name, "orderingKey": "key"},
        "resumeQueue": {"queueName": name},
        "getQueueStats": {"queueNames": [name]},
    }
    for method, arguments in calls.items():
        error = await refused(wire.call(method, **arguments))
        assert (error.code, error.message) == (413, f"Queue not found: {name}"), method


async def test_a_dequeue_a_dry_run_and_a_long_poll_of_a_missing_queue_say_so(wire: Wire) -> None:
    for more in ({}, {"dryRun": True}, {"waitMillis": 60_000}, {"jobAckRequest": ack_request("missing")}):
        assert (await refused(wire.dequeue("missing", **more))).code == 413
    assert (await refused(wire.dequeue("missing", 0))).code == 413


async def test_lookup_leaves_out_jobs_of_a_missing_queue(wire: Wire) -> None:
    assert await wire.lookup("missing:s1:p1:1") == {}


async def test_a_riding_ack_of_a_missing_queue_refuses_the_dequeue_and_claims_nothing(wire: Wire, queue: str) -> None:
    await wire.enqueue(queue, b"x")
    assert (await refused(wire.dequeue(queue, jobAckRequest=ack_request("missing")))).code == 413
    assert await wire.count(queue) == 1


async def test_the_messages_that_people_grep_for(wire: Wire, queue: str) -> None:
    await wire.call("pauseQueue", queueName=queue)
    paused = await refused(wire.dequeue(queue))
    assert paused.message.startswith(f"Dequeue rate limit exceeded for queue: {queue}")
    await wire.call("resumeQueue", queueName=queue)
    await wire.configure(queue, maxJobsPerSecond=0.0)
    assert (await refused(wire.dequeue(queue))).message == f"Dequeue rate limit exceeded for queue: {queue}"


async def test_no_healthy_shard_is_said_in_the_words_people_grep_for(start: Start) -> None:
    running = await start(2)
    wire = await running.connect()
    await wire.create("q")
    for shard in running.core.shards:
        shard.healthy = False
    for call in (wire.enqueue("q", b"x"), wire.dequeue("q")):
        error = await refused(call)
        assert (error.code, error.message, error.retryable) == (501, "Unable to find healthy shard", True)
