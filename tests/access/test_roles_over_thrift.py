"""Each role against each method of the protocol, over a socket, as the table says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from pinlater.domain.access import INCLUDED, METHOD_ROLES, VARIANT_ROLES, Role
from pinlater.domain.bulk import BulkAction, BulkOrder
from pinlater.domain.errors import ShardConnectionFailed
from pinlater.domain.job import JobState
from pinlater.domain.job_filter import JobFilter
from pinlater.server.features.all import METHODS
from pinlater.server.features.bulk.runs import BulkRuns
from pinlater.wire.codec import Decoder, Reply, encode_call
from pinlater.wire.methods import METHODS_BY_NAME
from tests import structs as types
from tests.access.conftest import GuardedServer
from tests.compiled import ttypes

DENIALS = {"ACCESS_DENIED", "TOKEN_REQUIRED", "TOKEN_INVALID"}
NAME = "mail_new:s1:p1:1"


def arguments(method: str, queue: str = "mail_new") -> dict[str, Any]:
    """Arguments of a call on the queue that does little."""
    job = f"{queue}:s1:p1:1"
    ack = types.AckBatch(queue, succeeded=[types.Ack(job)])
    checkpoints = types.CheckpointBatch(queue, [types.Checkpoint(job)])
    count = types.CountRequest(queue, ttypes.PinLaterJobState.PENDING)
    of_queue = {"queue": queue}
    of_jobs = {"queue": queue, "descriptors": [job]}
    requests: dict[str, Any] = {
        "enqueueJobs": types.EnqueueRequest(queue, [types.Job(b"body")]),
        "dequeueJobs": types.DequeueRequest(queue, 1),
        "ackDequeuedJobs": ack,
        "ackJobs": ack,
        "checkpointJobs": checkpoints,
        "checkpointJobsFenced": checkpoints,
        "lookupJobs": types.LookupRequest([job]),
        "getJobCount": count,
        "countJobs": count,
        "scanJobs": types.ScanRequest(queue, ttypes.PinLaterJobState.PENDING),
        "retryFailedJobs": types.RetryRequest(queue),
        "deleteJobs": types.DeleteRequest(queue, ttypes.PinLaterJobState.FAILED),
        "heartbeatClaims": types.ClaimsRequest(queue, [types.Claim(job, "token")]),
        "releaseJobs": types.ReleaseRequest(queue, [types.Claim(job, "token")]),
        "runJobs": types.RunJobsRequest(queue, [job]),
        "changePriority": types.ChangePriorityRequest(queue, [job], 1),
        "getAudit": types.AuditRequest(queue),
        "findUniqueKey": types.UniqueKeyRequest([queue], "key"),
        "getFailures": types.FailuresRequest([queue]),
        "listBulkRuns": types.BulkRunsRequest([queue]),
        "getQueueHistory": types.QueueHistoryRequest([queue], 0),
    }
    others: dict[str, dict[str, Any]] = {
        "createQueue": {"name": queue},
        "ensureQueue": {"name": queue},
        "createOrderedQueue": {"name": f"{queue}_ordered"},
        "deleteQueue": {"name": queue, "password": ""},
        "getQueueNames": {},
        "getServerInfo": {},
        "getCluster": {},
        "getQueueOwners": {},
        "getWaitingDequeues": {},
        "getWorkers": {"everywhere": True},
        "cancelJobs": of_jobs,
        "deleteJobsByDescriptor": of_jobs,
        "deleteJobsInState": {**of_jobs, "state": 3},
        "configureQueue": {**of_queue, "config": types.QueueConfig()},
        "addDeployMark": {"mark": types.DeployMark(0, "v2", queue)},
        "startBulkRun": {"order": types.BulkOrder(queue, ttypes.BulkAction.RETRY, types.JobFilter(3))},
        "startLimitedBulkRun": {
            "order": types.BulkOrder(queue, ttypes.BulkAction.RETRY, types.JobFilter(3), max_jobs=9)
        },
        "stopBulkRun": {**of_queue, "run_id": "0123456789abcdef"},
        "getBulkRuns": {"queues": [queue]},
        "muteFailures": {"mute": types.FailureMute(queue, "0123456789abcdef")},
        "explainJob": {**of_queue, "descriptor": job},
        "getQueueConfig": of_queue,
        "getSettingsInForce": of_queue,
        "pauseQueue": of_queue,
        "resumeQueue": of_queue,
        "unblockKey": {**of_queue, "ordering_key": "key"},
        "getQueueStats": {"queues": [queue]},
    }
    return {"request": requests[method]} if method in requests else others[method]


NAME_A_QUEUE = [name for name in METHOD_ROLES if METHODS[name].queues(SimpleNamespace(**arguments(name)))]


class TokenSender:
    """A connection that sends a token with each call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, server: GuardedServer) -> TokenSender:
        return cls(*await asyncio.open_connection("127.0.0.1", server.server.port))

    async def call(self, method: str, token: str | None, **arguments: Any) -> Reply:
        return await self.call_as(types.RequestContext("tests", auth_token=token), method, **arguments)

    async def call_as(self, context: types.RequestContext, method: str, **arguments: Any) -> Reply:
        self._writer.write(encode_call(method, 1, context=context, **arguments))
        async with asyncio.timeout(30):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return Decoder().reply(await self._reader.readexactly(size))

    def close(self) -> None:
        self._writer.close()


async def denial(caller: TokenSender, method: str, token: str | None, **given: Any) -> str:
    """The detail of the refusal; '' if the call was let through, whatever became of it."""
    reply = await caller.call(method, token, **(given or arguments(method)))
    assert reply.application_error is None, reply
    detail = "" if reply.exception is None else reply.exception.detail
    return detail if detail in DENIALS else ""


def test_the_table_has_every_method_of_the_protocol_and_no_other() -> None:
    assert set(METHOD_ROLES) == set(METHODS_BY_NAME) == set(METHODS)


@pytest.mark.parametrize("method", METHOD_ROLES)
async def test_each_role_may_call_what_the_table_says_and_nothing_else(guarded: GuardedServer, method: str) -> None:
    needed = METHOD_ROLES[method]
    for role in Role:
        token = guarded.token(role)
        caller = await TokenSender.connect(guarded)
        may = not needed or bool(needed & INCLUDED[role])
        assert await denial(caller, method, token) == ("" if may else "ACCESS_DENIED"), role
        caller.close()


async def test_without_a_token_only_what_every_caller_may_do_is_answered(guarded: GuardedServer) -> None:
    guarded.refuses_at_once()
    caller = await TokenSender.connect(guarded)
    for method, roles in METHOD_ROLES.items():
        assert await denial(caller, method, None) == ("TOKEN_REQUIRED" if roles else ""), method
    caller.close()


async def test_an_unknown_token_is_refused_whatever_the_method(guarded: GuardedServer) -> None:
    guarded.refuses_at_once()
    caller = await TokenSender.connect(guarded)
    for method in METHOD_ROLES:
        assert await denial(caller, method, "pinlater_guessed") == "TOKEN_INVALID", method
    caller.close()


@pytest.mark.parametrize("method", NAME_A_QUEUE)
async def test_a_token_for_other_queues_is_refused(guarded: GuardedServer, method: str) -> None:
    """Of every method that names a queue or a job."""
    token = guarded.token(Role.ADMIN, queues=["mail*"])
    caller = await TokenSender.connect(guarded)
    assert await denial(caller, method, token, **arguments(method, "other")) == "ACCESS_DENIED"
    assert await denial(caller, method, token, **arguments(method, "mail_old")) == ""
    caller.close()


async def test_only_a_token_for_all_queues_marks_all_queues(guarded: GuardedServer) -> None:
    """The charts of queues that the token is not for would show its text."""
    caller = await TokenSender.connect(guarded)
    mark = types.DeployMark(guarded.clock.now_ms(), "v2")
    for queues, expected in ((["mail*"], "ACCESS_DENIED"), (["mail*", "*"], "")):
        token = guarded.token(Role.OPERATE, queues=queues)
        assert await denial(caller, "addDeployMark", token, mark=mark) == expected
    caller.close()


@pytest.mark.parametrize("role", list(Role))
async def test_a_lookup_with_bodies_and_a_dry_run_need_the_roles_of_their_own_rows(
    guarded: GuardedServer, role: Role
) -> None:
    token = guarded.token(role)
    lookup = types.LookupRequest([NAME], bodies=True)
    dry_run = types.DequeueRequest("mail_new", 1, dry_run=True)
    for method, variant, request in (
        ("lookupJobs", "lookupJobs with bodies", lookup),
        ("dequeueJobs", "dequeueJobs as a dry run", dry_run),
    ):
        caller = await TokenSender.connect(guarded)
        expected = "" if VARIANT_ROLES[variant] & INCLUDED[role] else "ACCESS_DENIED"
        assert await denial(caller, method, token, request=request) == expected
        caller.close()


async def test_acks_in_a_dry_run_need_the_role_work(guarded: GuardedServer) -> None:
    """They end attempts, whatever the dequeue itself does."""
    token = guarded.token(Role.READ)
    acks = types.AckBatch("mail_new", succeeded=[types.Ack(NAME)])
    request = types.DequeueRequest("mail_new", 1, acks=acks, dry_run=True)
    caller = await TokenSender.connect(guarded)
    assert await denial(caller, "dequeueJobs", token, request=request) == "ACCESS_DENIED"
    caller.close()


async def test_acks_for_another_queue_in_a_dequeue_need_that_queue(guarded: GuardedServer) -> None:
    token = guarded.token(Role.WORK, queues=["mail*"])
    acks = types.AckBatch("other", succeeded=[types.Ack("other:s1:p1:1")])
    request = types.DequeueRequest("mail_new", 1, acks=acks)
    caller = await TokenSender.connect(guarded)
    assert await denial(caller, "dequeueJobs", token, request=request) == "ACCESS_DENIED"
    caller.close()


async def test_one_job_of_another_queue_refuses_the_whole_lookup(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, queues=["mail*"])
    request = types.LookupRequest([NAME, "other:s1:p1:1"])
    caller = await TokenSender.connect(guarded)
    assert await denial(caller, "lookupJobs", token, request=request) == "ACCESS_DENIED"
    caller.close()


async def test_the_server_tells_each_caller_its_own_rights(guarded: GuardedServer) -> None:
    """A program, such as the console, shows who is logged in, and offers what the token allows."""
    caller = await TokenSender.connect(guarded)
    token = guarded.token(Role.READ, Role.PRODUCE, queues=["mail*", "other"], name="billing", expires_at_ms=2**50)
    told = (await caller.call("getServerInfo", token)).value.caller
    assert (told.token_name, told.roles, told.queues) == ("billing", ["read", "produce"], ["mail*", "other"])
    assert told.expires_at_ms == 2**50
    told = (await caller.call("getServerInfo", None)).value.caller
    assert (told.token_name, told.roles, told.queues, told.expires_at_ms) == (None, [], ["*"], None)
    caller.close()


async def test_a_unique_key_is_looked_for_in_the_queues_of_the_token_only(guarded: GuardedServer) -> None:
    admin, caller = guarded.token(Role.ADMIN), await TokenSender.connect(guarded)
    for queue in ("mail_new", "other"):
        await caller.call("createQueue", admin, name=queue)
        job = types.Job(b"x", unique_key="key")
        await caller.call("enqueueJobs", admin, request=types.EnqueueRequest(queue, [job]))

    async def found(token: str, *queues: str) -> list[str]:
        answer = (await caller.call("findUniqueKey", token, request=types.UniqueKeyRequest(list(queues), "key"))).value
        return sorted(info.descriptor.partition(":")[0] for info in answer.jobs)

    assert await found(admin) == ["mail_new", "other"]
    assert await found(guarded.token(Role.READ, queues=["mail*"])) == ["mail_new"]
    assert await found(guarded.token(Role.READ, queues=["none*"])) == []
    token = guarded.token(Role.READ, queues=["mail*"])
    for queues in (["other"], ["mail_new", "other"]):
        request = types.UniqueKeyRequest(queues, "key")
        assert await denial(caller, "findUniqueKey", token, request=request) == "ACCESS_DENIED"
    caller.close()


async def test_a_pause_keeps_the_name_of_the_token(guarded: GuardedServer) -> None:
    """A source is only what callers call themselves."""
    token = guarded.token(Role.OPERATE, name="night-shift")
    caller = await TokenSender.connect(guarded)
    await caller.call("createQueue", token, name="mail_new")
    await caller.call("pauseQueue", token, queue="mail_new")
    reply = await caller.call("explainJob", token, queue="mail_new", descriptor=NAME)
    assert reply.value.queue.paused_by == "tests (token night-shift)"
    caller.close()


@pytest.mark.parametrize("role", [Role.READ, Role.OPERATE, Role.ADMIN])
async def test_only_operators_see_what_a_database_says_of_a_failure(guarded: GuardedServer, role: Role) -> None:
    """It may name users, hosts and files."""
    secret = "db-1:3306/jobs refuses our login (Access denied for user 'pinlater'@'10.0.0.1')"
    [shard] = guarded.core.shards
    shard.health.failed(secret, "refused")
    shard.fullness.refused(secret)
    with patch.object(guarded.core.service.job_queries, "scan_page", side_effect=ShardConnectionFailed(secret)):
        await guarded.core.service.of(BulkRuns).start(
            BulkOrder("mail_new", BulkAction.RETRY, JobFilter(JobState.FAILED)), "ops"
        )
        guarded.clock.advance(seconds=2)
        caller = await TokenSender.connect(guarded)
        token = guarded.token(role, queues=["mail*"])
        async with asyncio.timeout(30):
            while (run := (await caller.call("getBulkRuns", token, queues=[])).value[0]).detail is None:
                guarded.clock.advance(seconds=2)
    details = (await caller.call("getCluster", token)).value.shards[0].details
    texts = (details.failure, details.full, run.detail)
    expected = (None, "full", "waits") if role is Role.READ else (secret, secret, f"waits: {secret}")
    assert (texts, details.failure_kind) == (expected, "refused")
    caller.close()
