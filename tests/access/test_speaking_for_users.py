"""Tokens that speak for users: the audit names these, and believes no other token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pinlater.client import AsyncClient
from pinlater.client.errors import AccessDenied
from pinlater.domain.access import Role
from pinlater.domain.caller_names import is_user_name
from pinlater.wire.generated import structs as types
from tests.access.conftest import GuardedServer
from tests.access.test_audit_of_callers import entries
from tests.access.test_roles_over_thrift import NAME, TokenSender


async def pause_for(guarded: GuardedServer, token: str, user: str) -> None:
    async with AsyncClient(guarded.address, token="", source="tests", wait_for_servers=False) as client:
        await client.with_token(token, user).pause_queue("other")


@pytest.mark.parametrize("user", ["ada", "ada@example.org", "CORP\\ada", "uid=ada", "a" * 100])
async def test_the_audit_and_its_log_name_the_user_beside_the_token(
    guarded: GuardedServer, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    token = guarded.token(Role.OPERATE, name="console", speaks_for_others=True)
    await pause_for(guarded, token, user)
    [found] = await entries(guarded)
    assert (found.who, tuple(found.roles)) == (f"console for {user}", ("operate",))
    assert await entries(guarded, who=f"console for {user}") == [found]
    [line] = [record for record in caplog.records if record.message == "administrative call"]
    assert line.who == f"console for {user}"  # type: ignore[attr-defined]


async def test_a_name_from_another_token_is_ignored(guarded: GuardedServer) -> None:
    await pause_for(guarded, guarded.token(Role.OPERATE, name="ops"), "ada")
    [found] = await entries(guarded)
    assert found.who == "ops"


async def test_a_name_without_a_token_is_ignored(start: Callable[..., Awaitable[GuardedServer]]) -> None:
    guarded = await start(Role.OPERATE)
    caller = await TokenSender.connect(guarded)
    context = types.RequestContext("tests", on_behalf_of="ada")
    await caller.call_as(context, "pauseQueue", queue="other")
    [found] = await entries(guarded)
    assert found.who == "no token"
    caller.close()


@pytest.mark.parametrize("user", ["ada, eve", "ada eve", "ada\n", "\u00e4da", "ada\x00", "a" * 101, "ada for eve"])
async def test_what_can_be_no_name_is_refused_and_audited_with_the_token_alone(
    guarded: GuardedServer, user: str
) -> None:
    token = guarded.token(Role.OPERATE, name="console", speaks_for_others=True)
    assert not is_user_name(user)
    with pytest.raises(AccessDenied):
        await pause_for(guarded, token, user)
    [found] = await entries(guarded)
    assert (found.who, found.outcome) == ("console", "refused")


async def test_a_user_has_the_rights_of_the_token_and_no_other(guarded: GuardedServer) -> None:
    token = guarded.token(Role.READ, name="console", speaks_for_others=True)
    with pytest.raises(AccessDenied):
        await pause_for(guarded, token, "root")


async def test_a_pause_keeps_the_user(guarded: GuardedServer) -> None:
    token = guarded.token(Role.OPERATE, name="console", speaks_for_others=True)
    await pause_for(guarded, token, "ada")
    caller = await TokenSender.connect(guarded)
    job = NAME.replace("mail_new", "other")
    reply = await caller.call("explainJob", token, queue="other", descriptor=job)
    assert reply.value.queue.paused_by == "tests (token console for ada)"
    caller.close()


async def test_a_long_source_does_not_push_the_names_out_of_a_pause(guarded: GuardedServer) -> None:
    """Else a caller could write another name into the part that is shown."""
    user = "u" * 100
    token = guarded.token(Role.OPERATE, name="t" * 64, speaks_for_others=True)
    caller = await TokenSender.connect(guarded)
    context = types.RequestContext("tests (token root)" + " " * 300, auth_token=token, on_behalf_of=user)
    await caller.call_as(context, "pauseQueue", queue="other")
    reply = await caller.call("explainJob", token, queue="other", descriptor=NAME.replace("mail_new", "other"))
    assert reply.value.queue.paused_by.endswith(f" (token {'t' * 64} for {user})")
    caller.close()


async def test_the_server_tells_a_token_whether_it_may_speak_for_others(guarded: GuardedServer) -> None:
    caller = await TokenSender.connect(guarded)
    for speaks in (True, False):
        token = guarded.token(Role.READ, speaks_for_others=speaks)
        told = (await caller.call("getServerInfo", token)).value.caller
        assert bool(told.speaks_for_others) is speaks
    caller.close()
