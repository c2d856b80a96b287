"""Quotas over HTTP: the console passes on the token of each caller, and the connections that its callers share keep none of them out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.domain.access import Role
from pinlater.server.access.quotas import OwnQuota
from tests.access.conftest import GuardedServer
from tests.access.quota_callers import connect, until
from tests.console.caller import Answer, Caller

ONE_CONNECTION = OwnQuota(connections=1)


@pytest.fixture
async def caller(guarded: GuardedServer) -> AsyncIterator[Caller]:
    async with AsyncClient(guarded.address, token="", wait_for_servers=False) as client:
        yield Caller(Console(client, guarded.clock.now_ms, None).app)


async def look(caller: Caller, token: str) -> Answer:
    return await caller.get("/v1/queues", authorization=f"Bearer {token}")


async def test_callers_in_turn_share_the_connections_of_the_console(guarded: GuardedServer, caller: Caller) -> None:
    tokens = [guarded.token(Role.READ, name=name, quota=ONE_CONNECTION) for name in ("a", "b", "c")]
    for _ in range(3):
        for token in tokens:
            assert (await look(caller, token)).status == 200
    for _ in range(5):
        answers = await asyncio.gather(*(look(caller, token) for token in tokens))
        assert [answer.status for answer in answers] == [200, 200, 200]
    assert guarded.server.connections <= 3


async def test_a_caller_whose_other_connections_use_the_quota_may_use_a_connection_of_the_console(
    guarded: GuardedServer, caller: Caller
) -> None:
    first, second = [guarded.token(Role.READ, name=name, quota=ONE_CONNECTION) for name in ("a", "b")]
    own = await connect(guarded, first)
    await own.refusal("getQueueNames")
    refused = await look(caller, first)
    assert (refused.status, refused.json["reason"], refused.json["retryable"]) == (
        429,
        "CONNECTION_QUOTA_EXCEEDED",
        True,
    )
    assert refused.headers["retry-after"] == "1"
    assert "token a" in refused.json["detail"]
    assert (await look(caller, second)).status == 200
    assert (await look(caller, first)).status == 200, "the connection is open, and counts for the other token"
    assert (await look(caller, second)).status == 200


async def test_a_poll_over_a_shared_connection_does_not_use_the_quota_of_the_caller_before(
    guarded: GuardedServer, caller: Caller
) -> None:
    first, second = [guarded.token(Role.WORK, Role.READ, name=name, quota=ONE_CONNECTION) for name in ("a", "b")]
    own = await connect(guarded, first)
    await own.refusal("getQueueNames")
    assert (await look(caller, second)).status == 200
    poll = caller.post("/v1/queues/other/jobs/dequeue", {"wait_ms": 60_000}, authorization=f"Bearer {first}")
    waiting = asyncio.create_task(poll)
    await until(lambda: guarded.use("a").polls == 1)
    assert guarded.server.connections == 2, "the poll waits over the connection of the request before"
    assert (await look(caller, second)).status == 200
    guarded.core.dispatcher.drain()
    assert (await waiting).status == 200


async def test_polls_over_http_count_for_the_token_of_the_request(guarded: GuardedServer, caller: Caller) -> None:
    token = guarded.token(Role.WORK, Role.PRODUCE, name="a", quota=OwnQuota(polls=1))
    other = guarded.token(Role.WORK)
    headers = {"authorization": f"Bearer {token}"}
    waiting = asyncio.create_task(caller.post("/v1/queues/other/jobs/dequeue", {"wait_ms": 60_000}, **headers))
    await until(lambda: guarded.use("a").polls == 1)
    refused = await caller.post("/v1/queues/other/jobs/dequeue", {"wait_ms": 60_000}, **headers)
    assert (refused.status, refused.json["reason"]) == (429, "QUOTA_EXCEEDED")
    assert (await caller.post("/v1/queues/other/jobs/dequeue", {}, **headers)).status == 200
    its_own = {"authorization": f"Bearer {other}"}
    assert (await caller.post("/v1/queues/mail_new/jobs/dequeue", {}, **its_own)).status == 200
    stored = await caller.post("/v1/queues/other/jobs", {"body": "text"}, **headers)
    assert stored.status < 300
    assert len((await waiting).json["jobs"]) == 1
    assert guarded.use("a").polls == 0
