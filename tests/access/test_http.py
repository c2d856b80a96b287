"""Tokens over HTTP: each endpoint of the API with each role, and each page of the server's own port."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from pinlater.client import AsyncClient
from pinlater.console.app import Console
from pinlater.console.routes import ENDPOINTS
from pinlater.domain.access import BODIES, Role, allowed, digest_of, new_secret
from pinlater.domain.refusals import Refusal
from pinlater.server.access.control import AccessControl
from pinlater.server.access.tokens import Token
from pinlater.server.http.server import CHECKS, HttpServer
from pinlater.server.http.settings import HttpSettings
from pinlater.server.http.status import OneServer, Readiness
from pinlater.server.telemetry.metrics import Metrics
from tests.access.conftest import GuardedServer
from tests.access.quota_callers import until
from tests.console.caller import Answer, Caller

JOB = "mail_new:s1:p1:1"
JOBS = {"jobs": [{"descriptor": JOB, "token": "token"}]}
DESCRIPTORS = {"descriptors": [JOB]}
BODIES_OF_REQUESTS: dict[str, Any] = {
    "enqueue": {},
    "enqueue_batch": {"jobs": [{"body": "text"}]},
    "dequeue": {},
    "ack_jobs": JOBS,
    "heartbeat_jobs": JOBS,
    "checkpoint_jobs": JOBS,
    "release_jobs": JOBS,
    "lookup_jobs": DESCRIPTORS,
    "cancel_jobs": DESCRIPTORS,
    "run_jobs_now": DESCRIPTORS,
    "change_priority": {**DESCRIPTORS, "priority": 1},
    "retry_failed_jobs": {},
    "delete_jobs_by_descriptor": DESCRIPTORS,
    "create_queue": {"name": "mail_new"},
    "unblock_key": {"ordering_key": "key"},
    "replace_settings": {},
    "change_settings": {"max_backlog": 10},
    "add_mark": {"text": "v2", "queue": "mail_new"},
    "start_bulk_run": {"action": "retry"},
    "stop_bulk_run": {"run": "0123456789abcdef"},
    "undo_bulk_run": {"run": "0123456789abcdef"},
    "mute_failures": {"group": "0123456789abcdef"},
}
QUERIES = {
    "find_unique_key": "?unique_key=x&queue={queue}",
    "delete_jobs": "?state=failed",
    "get_history": "?queue={queue}",
    "get_failures": "?queue={queue}",
    "get_bulk_runs": "?queue={queue}",
    "get_workers": "?queue={queue}",
    "search_jobs": "?text=x&queue={queue}",
}
# The methods whose names in the protocol differ from those of the client.
PROTOCOL_NAMES = {
    "ack": "ackJobs",
    "ack_plain": "ackDequeuedJobs",
    "add_mark": "addDeployMark",
    "audit": "getAudit",
    "bulk_runs": "getBulkRuns",
    "cancel": "cancelJobs",
    "checkpoint": "checkpointJobsFenced",
    "checkpoint_plain": "checkpointJobs",
    "cluster": "getCluster",
    "count": "getJobCount",
    "dequeue": "dequeueJobs",
    "enqueue": "enqueueJobs",
    "failures": "getFailures",
    "heartbeat": "heartbeatClaims",
    "lookup": "lookupJobs",
    "queue_config": "getQueueConfig",
    "queue_history": "getQueueHistory",
    "queue_names": "getQueueNames",
    "queue_stats": "getQueueStats",
    "release": "releaseJobs",
    "retry_failed": "retryFailedJobs",
    "scan": "scanJobs",
    "server_info": "getServerInfo",
    "settings_in_force": "getSettingsInForce",
    "undo_bulk_run": "startBulkRun",
    "waiting_dequeues": "getWaitingDequeues",
    "workers": "getWorkers",
}


def method_of(call: str) -> str:
    """The method of the protocol that the client's call sends."""
    return PROTOCOL_NAMES.get(call) or re.sub("_([a-z])", lambda found: found[1].upper(), call)


def needed(name: str, calls: str) -> set[str]:
    """The methods and variants that an endpoint needs."""
    return {BODIES} if name == "get_job_body" else {method_of(call) for call in calls.split(", ")}


async def request(caller: Caller, endpoint: Any, token: str | None, queue: str = "mail_new") -> Answer:
    """One request to the endpoint, with a token or without one."""
    body = BODIES_OF_REQUESTS.get(endpoint.name)
    path = endpoint.path.format(queue=queue, descriptor=JOB.replace("mail_new", queue))
    path += QUERIES.get(endpoint.name, "").format(queue=queue)
    text = "" if body is None else json.dumps(body).replace("mail_new", queue)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return await caller.send(endpoint.method, path, text.encode(), **headers)


@pytest.fixture
async def caller(guarded: GuardedServer) -> AsyncIterator[Caller]:
    async with AsyncClient(guarded.address, token="", wait_for_servers=False) as client:
        yield Caller(Console(client, guarded.clock.now_ms, None).app)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.name)
async def test_each_role_may_call_the_endpoints_whose_methods_the_table_allows(
    guarded: GuardedServer, caller: Caller, endpoint: Any
) -> None:
    for role in Role:
        token = guarded.token(role)
        answer = await request(caller, endpoint, token)
        if needed(endpoint.name, endpoint.calls) <= allowed([role]):
            assert answer.status not in (401, 403), (role, answer)
        else:
            assert (answer.status, answer.json["reason"]) == (403, "ACCESS_DENIED"), (role, answer)
            assert token not in answer.body.decode()


async def test_without_a_good_token_an_endpoint_asks_for_one(guarded: GuardedServer, caller: Caller) -> None:
    guarded.refuses_at_once()
    for endpoint in ENDPOINTS:
        wrong = await request(caller, endpoint, "pinlater_guessed")
        assert (wrong.status, wrong.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"'), endpoint
        answer = await request(caller, endpoint, None)
        if endpoint.name == "get_server":
            assert answer.status == 200
        else:
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), endpoint


@pytest.mark.parametrize("endpoint", [one for one in ENDPOINTS if "{" in one.path], ids=lambda endpoint: endpoint.name)
async def test_an_endpoint_of_another_queue_is_forbidden(guarded: GuardedServer, caller: Caller, endpoint: Any) -> None:
    token = guarded.token(Role.ADMIN, queues=["mail*"])
    answer = await request(caller, endpoint, token, "other")
    assert (answer.status, answer.json["reason"]) == (403, "ACCESS_DENIED")


async def test_the_console_has_no_rights_of_its_own_from_the_environment(
    guarded: GuardedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token of the operator's shell would be every caller's."""
    monkeypatch.setenv("PINLATER_TOKEN", guarded.token(Role.ADMIN))
    async with AsyncClient(guarded.address, wait_for_servers=False) as client:
        caller = Caller(Console(client, guarded.clock.now_ms, None).app)
        assert (await caller.get("/v1/queues")).status == 401


async def test_what_can_be_no_token_is_a_401_and_another_scheme_is_no_token(caller: Caller) -> None:
    answer = await caller.get("/v1/queues", authorization="Bearer two words")
    assert (answer.status, answer.json["reason"]) == (401, "TOKEN_INVALID")
    answer = await caller.get("/v1/queues", authorization="Basic dXNlcjpwYXNz")
    assert (answer.status, answer.json["reason"]) == (401, "TOKEN_REQUIRED")


PAGES = {
    "/stats.txt": 200,
    "/stats.json": 200,
    "/metrics": 200,
    "/server_info": 200,
    "/demand?queue=q": 503,  # not known
    "/nothing": 404,
}


class StatusPort:
    """The server's own HTTP port, with tokens for all queues by role, and one for some queues."""

    def __init__(self, max_connections: int = 256) -> None:
        self.secrets = {role.value: new_secret() for role in Role} | {"some queues": new_secret()}
        tokens = [
            Token(name.replace(" ", "-"), digest_of(secret), (Role(name) if name in list(Role) else Role.READ,), ("*",))
            for name, secret in self.secrets.items()
        ]
        tokens[-1] = tokens[-1]._replace(queues=("mail*",))
        metrics = Metrics()
        source = OneServer(metrics, lambda: Readiness(True), dict, tuple)
        self.control = AccessControl(tokens, (), lambda: 0, lambda: 0.0)
        settings = HttpSettings(port=0, max_connections=max_connections)
        self.server = HttpServer(settings, metrics, source, access=self.control)

    async def status(self, path: str, secret: str | None) -> int:
        """The status of the answer to one request. The port must have been started."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        token = "" if secret is None else f"Authorization: Bearer {secret}\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}\r\n".encode())
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        return int(answer.split()[1])


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StatusPort]:
    """A started port, which refuses without delay."""
    port = StatusPort()
    monkeypatch.setattr(port.control.refusals, "one", lambda _: Refusal(delay_s=0.0, log=0))
    await port.server.start()
    yield port
    await port.server.stop()


@pytest.mark.parametrize(("path", "good"), PAGES.items())
async def test_pages_of_the_server_need_the_role_read_for_all_queues(port: StatusPort, path: str, good: int) -> None:
    expected = {"read": good, "operate": good, "admin": good}
    for name, secret in port.secrets.items():
        assert await port.status(path, secret) == expected.get(name, 403), name
    assert await port.status(path, None) == 401
    assert await port.status(path, "pinlater_guessed") == 401


@pytest.mark.parametrize("path", sorted(CHECKS))
async def test_health_checks_need_no_token(port: StatusPort, path: str) -> None:
    assert await port.status(path, None) == 200


async def test_a_refusal_that_is_held_back_gives_way_to_other_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else callers without a token, who cost little, keep health checks and statistics out."""
    port, refusals = StatusPort(max_connections=1), asyncio.Semaphore(0)

    def refused(_: str) -> Refusal:
        refusals.release()
        return Refusal(delay_s=3_600.0, log=0)

    monkeypatch.setattr(port.control.refusals, "one", refused)
    await port.server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(port.server.stop)

        async def connected(request: str) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection("127.0.0.1", port.server.port)
            stack.callback(writer.close)
            writer.write(f"{request}Host: localhost\r\nConnection: close\r\n\r\n".encode())
            return reader

        held = await connected("GET /metrics HTTP/1.1\r\n")
        await refusals.acquire()
        good = await connected(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {port.secrets['read']}\r\n")
        async with asyncio.timeout(30):
            assert (await good.read()).startswith(b"HTTP/1.1 200 ")
            with suppress(ConnectionError):
                assert await held.read() == b""
        await until(lambda: all(task.get_name() != "http-connection" for task in asyncio.all_tasks()))
