"""The audit of a server with access control: the callers that entries name, and the callers that may read them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pinlater.client import AsyncClient
from pinlater.client.errors import AccessDenied, PasswordInvalid, PinLaterError, TokenInvalid, TokenRequired
from pinlater.domain.access import Role
from pinlater.domain.caller_address import shown_address
from pinlater.domain.caller_names import ADMIN_PASSWORD, NO_TOKEN
from pinlater.domain.clock import ManualClock
from pinlater.server.features.audit.trail import AuditTrail
from pinlater.server.storage.sqlite.memory import MemoryShard
from pinlater.wire.generated.structs import AuditEntry, AuditRequest
from tests.access.conftest import GuardedServer
from tests.assembly import listen, open_core
from tests.quick_hash import quick_hash

PASSWORD = "open sesame"


def client_of(guarded: GuardedServer, token: str) -> AsyncClient:
    return AsyncClient(guarded.address, token=token, source="tests", wait_for_servers=False)


async def entries(guarded: GuardedServer, **wanted: object) -> Sequence[AuditEntry]:
    """All that the server has, whatever rights that needs."""
    return (await guarded.core.service.of(AuditTrail).read(AuditRequest(**wanted))).entries  # type: ignore[arg-type]


async def test_an_entry_names_the_token_its_roles_and_its_address(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.OPERATE, Role.WORK, name="ops")) as client:
        await client.pause_queue("other")

    [found] = await entries(guarded)
    assert (found.who, tuple(found.roles), found.address, found.source) == (
        "ops",
        ("operate", "work"),
        "127.0.0.1",
        "tests",
    )
    assert (found.operation, found.queue, found.outcome, found.jobs) == ("pauseQueue", "other", "ok", None)
    assert (found.server, found.at_ms) == (guarded.core.service.identity.address, guarded.clock.now_ms())


async def test_an_entry_has_the_address_that_a_caller_names_and_always_that_of_its_connection(
    guarded: GuardedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """So a caller that is no console can't hide where it is."""
    caplog.set_level("INFO")
    async with client_of(guarded, guarded.token(Role.OPERATE)) as client:
        await client.with_token(guarded.token(Role.OPERATE), address="203.0.113.9").pause_queue("other")

    [found] = await entries(guarded)
    assert (found.address, found.source) == ("203.0.113.9 through 127.0.0.1", "tests")
    [line] = [record for record in caplog.records if record.message == "administrative call"]
    assert (line.client, "127.0.0.1" in line.peer) == ("203.0.113.9", True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("2001:DB8::1", "2001:db8::1 through 127.0.0.1"),
        ("::ffff:203.0.113.9", "203.0.113.9 through 127.0.0.1"),
        ("fe80::1%eth0", "fe80::1 through 127.0.0.1"),
        ("fe80::1%a through 10.0.0.1", "fe80::1 through 127.0.0.1"),
        ("10.0.0.1 through 10.0.0.2", "127.0.0.1"),
        ("10.0.0.1\n", "127.0.0.1"),
        ("somewhere", "127.0.0.1"),
        ("1" * 10_000, "127.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_what_is_no_address_is_not_shown(named: str, shown: str) -> None:
    assert shown_address(named, "127.0.0.1") == shown


async def test_bulk_operations_say_with_which_arguments_and_how_many_jobs(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.ADMIN, name="root")) as client:
        names = (await client.enqueue("other", [b"secret body"] * 3)).descriptors
        await client.cancel("other", names[:2])
        await client.retry_failed("other", priority=1, limit=7)

    retried, cancelled = await entries(guarded)
    assert (cancelled.jobs, json.loads(cancelled.arguments)) == (2, {"named": 2})
    assert (retried.jobs, json.loads(retried.arguments)["limit"]) == (0, 7)


async def test_hot_calls_leave_no_entry(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.ADMIN)) as client:
        await client.enqueue("other", [b"x"])
        [job] = (await client.dequeue("other", 1)).jobs
        await client.ack("other", [])
        await client.lookup([job.descriptor])

    assert await entries(guarded) == []


async def test_a_refused_token_that_the_server_knows_is_told_by_its_name(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.READ, name="reader")) as client:
        with pytest.raises(AccessDenied):
            await client.pause_queue("other")

    [found] = await entries(guarded)
    assert (found.who, found.outcome, found.detail) == ("reader", "refused", "PASSWORD_INVALID ACCESS_DENIED")


async def test_unknown_callers_push_no_entry_out(guarded: GuardedServer) -> None:
    """The log has their refusals."""
    for token, error in (("pinlater_guessed", TokenInvalid), ("", TokenRequired)):
        async with client_of(guarded, token) as client:
            with pytest.raises(error):
                await client.pause_queue("other")

    assert await entries(guarded) == []


async def test_a_queue_is_deleted_by_a_token_or_by_the_password(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.ADMIN, name="root")) as client:
        await client.delete_queue("other", "")

    [found] = await entries(guarded)
    assert (found.who, found.arguments) == ("root", "{}")


@pytest.mark.parametrize(
    ("password", "who", "outcome"), [(PASSWORD, ADMIN_PASSWORD, "ok"), ("wrong", NO_TOKEN, "refused")]
)
async def test_without_access_control_the_entry_of_a_deletion_names_the_password(
    password: str, who: str, outcome: str
) -> None:
    core = await open_core(MemoryShard(), clock=ManualClock(), admin_password_hash=quick_hash(PASSWORD))
    server = await listen(core)
    async with AsyncClient(f"127.0.0.1:{server.port}", wait_for_servers=False) as client:
        if outcome == "ok":
            await client.delete_queue("gone", password)
        else:
            with pytest.raises(PasswordInvalid):
                await client.delete_queue("gone", password)
        [found] = (await client.audit()).entries
    await server.drain(0)
    await core.close()

    assert (found.who, found.outcome, found.operation) == (who, outcome, "deleteQueue")
    assert password not in repr(found)


async def test_operators_read_the_audit_and_others_do_not(guarded: GuardedServer) -> None:
    async with client_of(guarded, guarded.token(Role.OPERATE, name="ops")) as client:
        await client.pause_queue("other")
        await client.resume_queue("other")
        page = await client.audit()
        assert [found.operation for found in page.entries] == ["resumeQueue", "pauseQueue"]
        assert [found.operation for found in (await client.audit(operation="pauseQueue", who="ops")).entries] == [
            "pauseQueue"
        ]
        first = await client.audit(limit=1)
        second = await client.audit(limit=1, continuation=first.continuation)
        assert [*first.entries, *second.entries] == list(page.entries)
    for role in (Role.READ, Role.PRODUCE, Role.WORK):
        async with client_of(guarded, guarded.token(role)) as client:
            with pytest.raises(AccessDenied):
                await client.audit()


async def test_a_token_of_some_queues_reads_the_entries_of_these_only(guarded: GuardedServer) -> None:
    """Entries of no queue, such as those of tokens, are for tokens of all queues."""
    async with client_of(guarded, guarded.token(Role.OPERATE, name="mail_all")) as client:
        for queue in ("mail_new", "other"):
            await client.pause_queue(queue)
    guarded.core.service.of(AuditTrail).buffer.add(
        AuditEntry("", 0, "tokens file", (), "", "", "tokenAdded", "", "{}", None, "ok", "")
    )
    async with client_of(guarded, guarded.token(Role.OPERATE, queues=["mail*"])) as client:
        assert [found.queue for found in (await client.audit()).entries] == ["mail_new"]
        with pytest.raises(PinLaterError, match="is not for queue 'other'"):
            await client.audit(queue="other")
