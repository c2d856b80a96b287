"""A front process as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pinlater.domain.access import Role, digest_of, new_secret
from pinlater.server.access.quotas import OwnQuota
from pinlater.server.access.tokens import Token, tokens_text
from pinlater.server.config.load import load
from pinlater.server.main.front import FrontApp
from tests.access.quota_callers import LONG_POLL, QUEUE, TokenCaller
from tests.front.conftest import DEADLINE_S, FrontAndStore, until
from tests.promises.wire import Wire

SETTINGS = load(None, {}, {"store": "sqlite:jobs.db", "thrift.port": 0, "http.port": 0}).settings


async def test_one_whose_start_is_cancelled_before_there_is_a_store_process_ends(tmp_path: Path) -> None:
    app = FrontApp(SETTINGS, str(tmp_path / "nowhere"), 1)
    before = asyncio.all_tasks()
    starting = asyncio.create_task(app.start())
    await until(lambda: len(asyncio.all_tasks() - before) > 1)
    starting.cancel()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([starting])
    assert asyncio.all_tasks() == before


async def test_it_serves_clients_and_is_not_ready_while_there_is_no_store_process(pair: FrontAndStore) -> None:
    app = FrontApp(SETTINGS, pair.path, 2)
    await app.start()
    wire = await Wire.connect(app.thrift.port)
    assert (await wire.create("emails")) == "emails"
    assert "emails" in pair.core.service.queue_cache.queues
    assert app.readiness().ok
    pair.fronts.close()
    await until(lambda: not app.readiness().ok)
    assert app.readiness().reasons == ("the process that has the store is not reachable",)
    await wire.close()
    await app.stop(1.0)


async def test_it_counts_for_quotas_and_loses_no_count_with_its_store_process(
    pair: FrontAndStore, tmp_path: Path
) -> None:
    """The store process executes the dequeues, and their callers are connected here."""
    secret, path = new_secret(), tmp_path / "tokens.json"
    path.write_text(tokens_text([Token("workers", digest_of(secret), (Role.WORK,), quota=OwnQuota(polls=1))]))
    given = {"store": "sqlite:jobs.db", "thrift.port": 0, "http.port": 0, "access.tokens_file": str(path)}
    app = FrontApp(load(None, {}, given).settings, pair.path, 2)
    await app.start()
    await pair.core.service.queues.create_queue(QUEUE)
    assert app.listener_files.access is not None
    use = app.listener_files.access.use_of(secret)
    assert use is not None
    callers = [TokenCaller(*await asyncio.open_connection("127.0.0.1", app.thrift.port), secret) for _ in range(2)]
    callers[0].send("dequeueJobs", request=LONG_POLL)
    await until(lambda: use.polls == 1)
    assert await callers[1].refusal("dequeueJobs", request=LONG_POLL) == "QUOTA_EXCEEDED"
    pair.fronts.close()
    assert (await callers[0].receive()).exception is not None
    assert (use.polls, use.connections) == (0, 2)
    for caller in callers:
        caller.close()
    await until(lambda: not use.is_in_use)
    await app.stop(1.0)
