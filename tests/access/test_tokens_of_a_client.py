"""Tokens while calls go on: filters of lists, expiry, revocation on open connections, default roles, slow refusals, and the clients."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pinlater.client import AsyncClient, Client
from pinlater.client.errors import AccessDenied, PasswordInvalid, TokenInvalid, TokenRequired
from pinlater.domain.access import Role
from pinlater.domain.clock import ManualClock
from pinlater.domain.refusals import ADDRESSES_MAX, DELAY_S_MAX, Refusals
from pinlater.server.features.workers.workers import Workers
from pinlater.server.operations.values import Caller as WorkerCaller
from pinlater.worker import Worker
from tests import structs as types
from tests.access.conftest import QUEUES, GuardedServer
from tests.access.quota_callers import until
from tests.access.test_roles_over_thrift import TokenSender, arguments, denial

Start = Callable[..., Awaitable[GuardedServer]]


async def test_lists_show_the_queues_of_the_token_only(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, queues=["mail*"])
    async with AsyncClient(guarded.address, token=token) as client:
        assert await client.queue_names() == ["mail_new", "mail_old"]
        assert {stats.queue for stats in await client.queue_stats()} == {"mail_new", "mail_old"}
        with pytest.raises(AccessDenied, match=r"is not for queue 'other', only for mail\*"):
            await client.queue_stats("mail_new", "other")
        assert await client.waiting_dequeues() == []


async def test_waiting_dequeues_of_other_queues_are_not_shown(guarded: GuardedServer) -> None:
    reader, worker = guarded.token(Role.READ, queues=["mail*"]), guarded.token(Role.WORK, Role.READ)
    async with AsyncClient(guarded.address, token=reader) as some, AsyncClient(guarded.address, token=worker) as all_:
        polls = [asyncio.create_task(all_.dequeue(queue, wait_ms=60_000)) for queue in ("mail_new", "other")]
        await until(lambda: guarded.server.answering.waiting == 2)
        assert {row.queue for row in await all_.waiting_dequeues()} == {"mail_new", "other"}
        assert {row.queue for row in await some.waiting_dequeues()} == {"mail_new"}
        for poll in polls:
            poll.cancel()


async def test_workers_and_lost_claims_of_other_queues_are_not_shown(guarded: GuardedServer) -> None:
    registry = guarded.core.service.of(Workers).registry
    one, other = WorkerCaller("one", process=1), WorkerCaller("other", process=2)
    registry.asked(one, "mail_new")
    registry.asked(one, "other")
    registry.asked(other, "other")
    registry.timed_out("mail_new", {"mail_new:s1:p1:1": "one"})
    registry.timed_out("other", {"other:s1:p1:1": "one", "other:s1:p1:2": "other"})
    token = guarded.token(Role.READ, queues=["mail*"])
    async with AsyncClient(guarded.address, token=token) as client:
        [answer] = await client.workers(everywhere=True)
    shown = [(each.source, each.process, [queue.queue for queue in each.queues]) for each in answer.workers]
    assert sorted(shown) == [("one", 0, ["mail_new"]), ("one", 1, ["mail_new"])]
    assert [claim.descriptor for each in answer.workers for claim in each.lost] == ["mail_new:s1:p1:1"]


@pytest.mark.parametrize("role", [Role.PRODUCE, Role.WORK])
async def test_producers_and_workers_do_not_see_the_workers(guarded: GuardedServer, role: Role) -> None:
    async with AsyncClient(guarded.address, token=guarded.token(role)) as client:
        with pytest.raises(AccessDenied):
            await client.workers()


async def test_refusals_name_the_role_and_the_token_and_never_the_secret(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, name="dashboards")
    async with AsyncClient(guarded.address, token=token) as client:
        with pytest.raises(AccessDenied) as caught:
            await client.enqueue("mail_new", [b"body"])
    assert caught.value.message == "enqueueJobs needs the role produce; token dashboards has read"
    assert not caught.value.retryable
    assert type(caught.value) is AccessDenied


async def test_a_token_that_expires_is_refused_on_open_connections(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, name="short", expires_at_ms=guarded.clock.now_ms() + 60_000)
    async with AsyncClient(guarded.address, token=token) as client:
        assert await client.queue_names() == sorted(QUEUES)
        guarded.clock.advance(ms=59_999)
        assert await client.queue_names() == sorted(QUEUES)
        guarded.clock.advance(ms=1)
        with pytest.raises(TokenInvalid, match="Token short has expired"):
            await client.queue_names()


async def test_a_revoked_token_is_refused_on_open_connections(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, name="old")
    caller = await TokenSender.connect(guarded)
    assert await denial(caller, "getQueueNames", token) == ""
    guarded.revoke("old")
    assert await denial(caller, "getQueueNames", token) == "TOKEN_INVALID"
    caller.close()


async def test_an_old_client_keeps_the_default_roles(start: Start) -> None:
    """It sends no token, and does not know the field."""
    server = await start(Role.PRODUCE, Role.WORK)
    old = types.RequestContext("tests", auth_token=None)
    caller = await TokenSender.connect(server)
    assert old.auth_token is None
    for method in ("enqueueJobs", "dequeueJobs", "ackDequeuedJobs", "checkpointJobs", "lookupJobs", "createQueue"):
        assert await denial(caller, method, None) == "", method
    for method in ("scanJobs", "retryFailedJobs", "deleteJobs", "getQueueNames"):
        assert await denial(caller, method, None) == "TOKEN_REQUIRED", method
    caller.close()


async def test_a_good_token_never_has_less_than_it_says_because_of_default_roles(start: Start) -> None:
    server = await start(Role.READ)
    caller = await TokenSender.connect(server)
    assert await denial(caller, "getQueueNames", server.token(Role.WORK)) == "ACCESS_DENIED"
    assert await denial(caller, "getQueueNames", "") == ""
    caller.close()


async def test_an_admin_deletes_a_queue_without_a_password_and_others_need_it(guarded: GuardedServer) -> None:
    async with AsyncClient(guarded.address, token=guarded.token(Role.OPERATE)) as operator:
        with pytest.raises(AccessDenied, match="needs the role admin"):
            await operator.delete_queue("other", "")
        with pytest.raises(PasswordInvalid):
            await operator.delete_queue("other", "wrong")
    async with AsyncClient(guarded.address, token=guarded.token(Role.ADMIN)) as admin:
        await admin.delete_queue("other", "")
        assert await admin.queue_names() == ["mail_new", "mail_old"]
    async with AsyncClient(guarded.address, token=guarded.token(Role.ADMIN, queues=["mail*"])) as admin:
        with pytest.raises(AccessDenied, match="is not for queue 'other'"):
            await admin.delete_queue("other", "")


async def test_refusals_are_counted_by_method_and_reason(guarded: GuardedServer) -> None:
    caller = await TokenSender.connect(guarded)
    await denial(caller, "scanJobs", None)
    await denial(caller, "scanJobs", "pinlater_guessed")
    await denial(caller, "scanJobs", guarded.token(Role.WORK))
    caller.close()
    errors = guarded.core.metrics.method("scanJobs").errors
    assert dict(errors) == {"TOKEN_REQUIRED": 1, "TOKEN_INVALID": 1, "ACCESS_DENIED": 1}


async def test_many_refusals_of_an_address_are_one_line_in_the_log(
    guarded: GuardedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caller = await TokenSender.connect(guarded)
    secret = "pinlater_a_guess"
    with caplog.at_level(logging.WARNING, "pinlater.server.thrift.guard"):
        for _ in range(3):
            assert await denial(caller, "scanJobs", secret) == "TOKEN_INVALID"
    caller.close()
    assert len(caplog.records) == 1
    assert secret not in caplog.text


async def test_good_calls_of_a_slowed_address_are_answered_at_once(guarded: GuardedServer) -> None:
    """Its refusals wait; the connection beside them does not."""
    for _ in range(20):
        guarded.control.refusals.one("127.0.0.1")
    slow, good = await TokenSender.connect(guarded), await TokenSender.connect(guarded)
    refused = asyncio.create_task(denial(slow, "scanJobs", "pinlater_guessed"))
    token = guarded.token(Role.READ)
    assert await denial(good, "getQueueNames", token) == ""
    assert not refused.done()
    assert await refused == "TOKEN_INVALID"
    slow.close()
    good.close()


def test_refusals_get_slower_up_to_a_bound_and_are_forgotten() -> None:
    now_s = 0.0
    refusals = Refusals(lambda: now_s)
    delays = [refusals.one("a").delay_s for _ in range(20)]
    assert delays[:5] == [0, 0, 0, 0.1, 0.2]
    assert delays[-1] == DELAY_S_MAX
    assert refusals.one("b").delay_s == 0
    now_s = 61.0
    assert refusals.one("a").delay_s == 0


def test_the_memory_of_refusals_is_bounded() -> None:
    refusals = Refusals(lambda: 0.0)
    for number in range(3 * ADDRESSES_MAX):
        refusals.one(f"host-{number}")
    assert len(refusals) == ADDRESSES_MAX


async def test_a_token_comes_from_the_argument_a_file_or_the_environment(
    guarded: GuardedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, file = guarded.token(Role.READ), tmp_path / "token"
    file.write_text(f"{token}\n")
    for given in (token, file):
        async with AsyncClient(guarded.address, token=given) as client:
            assert await client.queue_names() == sorted(QUEUES)
    monkeypatch.setenv("PINLATER_TOKEN_FILE", str(file))
    async with AsyncClient(guarded.address) as client:
        assert await client.queue_names() == sorted(QUEUES)
    monkeypatch.setenv("PINLATER_TOKEN", "pinlater_another")
    async with AsyncClient(guarded.address) as client:
        with pytest.raises(TokenInvalid):
            await client.queue_names()
    async with AsyncClient(guarded.address, token="") as client:
        with pytest.raises(TokenRequired):
            await client.queue_names()


async def test_the_sync_client_sends_its_token_also_with_long_polls(guarded: GuardedServer) -> None:
    token = guarded.token(Role.WORK, Role.PRODUCE)

    def work() -> int:
        with Client(guarded.address, token=token) as client:
            client.enqueue("mail_new", [b"body"])
            return len(client.dequeue("mail_new", wait_ms=1_000).jobs)

    assert await asyncio.to_thread(work) == 1


async def test_a_token_file_is_read_again_and_a_bad_one_keeps_the_last_token(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    clock, file = ManualClock(), tmp_path / "token"
    first, second = (guarded.token(Role.READ, queues=[queue]) for queue in ("mail_new", "other"))
    file.write_text(first)
    async with AsyncClient(guarded.address, token=file, clock=clock) as client:
        file.write_text(second)
        assert await client.queue_names() == ["mail_new"]
        clock.advance(seconds=1)
        assert await client.queue_names() == ["other"]
        file.unlink()
        clock.advance(seconds=1)
        assert await client.queue_names() == ["other"]


@pytest.mark.parametrize("given", ["two words", "lines\nin it", "gr\u00fcn", "x" * 5_000])
def test_a_token_that_can_be_none_is_refused_without_being_shown(given: str) -> None:
    with pytest.raises(ValueError, match="is no token") as caught:
        AsyncClient("h", token=given)
    assert given not in str(caught.value)


async def test_a_worker_runs_and_enqueues_with_its_token_and_says_where_from_if_it_has_none(
    guarded: GuardedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "token"
    file.write_text(guarded.token(Role.WORK, Role.PRODUCE, queues=["mail*"]))
    worker, ran = Worker(guarded.address, token=file), asyncio.Event()

    @worker.task("mail_new")
    async def greet(name: str) -> None:
        if name == "first":
            await greet.enqueue_async("second")
        else:
            ran.set()

    await greet.enqueue_async("first")
    running = asyncio.create_task(worker.run_async())
    async with asyncio.timeout(10):
        await ran.wait()
    worker.request_stop()
    await running

    without = Worker(guarded.address)
    task = without.task("mail_new", name="greet")(lambda: None)
    with pytest.raises(TokenRequired, match="needs the role produce") as caught:
        await task.enqueue_async()
    where_from = "A worker takes its token from Worker(token=...), PINLATER_TOKEN, or the file"
    assert caught.value.__notes__[0].startswith(where_from)
    running = asyncio.create_task(without.run_async())
    async with asyncio.timeout(10):
        while not any(where_from in message for message in caplog.messages):
            await asyncio.sleep(0.01)
    without.request_stop()
    await running


async def test_a_refused_call_is_not_tried_again(guarded: GuardedServer) -> None:
    token = guarded.token(Role.WORK)
    async with AsyncClient(guarded.address, token=token, retries=3) as client:
        with pytest.raises(AccessDenied):
            await client.queue_names()
    assert guarded.core.metrics.method("getQueueNames").requests == 1


async def test_the_last_use_of_a_token_is_known(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ)
    caller = await TokenSender.connect(guarded)
    await caller.call("getQueueNames", token, **arguments("getQueueNames"))
    caller.close()
    assert list(guarded.control.take_used().values()) == [guarded.clock.now_ms()]
    assert guarded.control.take_used() == {}
