"""Real workers whose token has used up its quota: what they have claimed they finish, once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from pinlater.client import AsyncClient, ClaimedJob, Job, JobState
from pinlater.domain.access import Role, digest_of, new_secret
from pinlater.server.access.quotas import OwnQuota, TokenUse
from pinlater.server.access.settings import AccessSettings
from pinlater.server.access.tokens import Token, tokens_text
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import StoreLocation
from pinlater.server.http.settings import HttpSettings
from pinlater.server.main.app import App
from pinlater.server.thrift.settings import ThriftSettings
from pinlater.worker import Worker, WorkerSettings
from tests.worker.conftest import eventually
from tests.worker.test_worker import running, state_of

OF_WORKERS, OF_PRODUCERS = new_secret(), new_secret()


@asynccontextmanager
async def served(folder: Path, quota: OwnQuota) -> AsyncIterator[App]:
    """A server with a token for workers that has this quota, and a queue."""
    path = folder / "tokens.json"
    tokens = [
        Token("workers", digest_of(OF_WORKERS), (Role.WORK,), quota=quota),
        Token("producers", digest_of(OF_PRODUCERS), (Role.ADMIN,)),
    ]
    path.write_text(tokens_text(tokens))
    settings = Settings(
        store=StoreLocation("memory"),
        thrift=ThriftSettings(port=0),
        http=HttpSettings(port=0),
        access=AccessSettings(path),
    )
    app = App(settings)
    await app.start()
    try:
        await app.core.service.queues.create_queue("q")
        yield app
    finally:
        await app.stop(1)


def use_of_workers(app: App) -> TokenUse:
    control = app.listener_files.access
    assert control is not None
    return next(use for use in control.uses() if use.name == "workers")


def client_of(app: App, secret: str) -> AsyncClient:
    return AsyncClient(f"127.0.0.1:{app.thrift.port}", token=secret, connections=1)


async def test_a_job_that_takes_longer_than_its_claim_runs_once(tmp_path: Path) -> None:
    """Its heartbeats need a connection, and there is none within the quota."""
    async with (
        served(tmp_path, OwnQuota(connections=2, polls=1)) as app,
        client_of(app, OF_PRODUCERS) as producer,
        client_of(app, OF_WORKERS) as client,
    ):
        worker = Worker(client, settings=WorkerSettings(concurrency=2, backoff_max_ms=200))
        runs: list[str] = []

        @worker.task("q", default=True)
        async def handle(job: ClaimedJob) -> None:
            runs.append(job.descriptor)
            await eventually(lambda: app.metrics.queue("q").heartbeat >= 4)

        async with running(worker):
            await eventually(lambda: use_of_workers(app).polls == 1)
            [descriptor] = (await producer.enqueue("q", [Job(b"", claim_timeout_ms=1_500)])).descriptors
            await eventually(partial(state_of, producer, descriptor, JobState.SUCCEEDED))
        assert runs == [descriptor]
        assert worker.counts.lost == 0


async def test_of_several_workers_those_beyond_the_quota_wait_and_every_job_runs_once(tmp_path: Path) -> None:
    async with served(tmp_path, OwnQuota(polls=1)) as app, AsyncExitStack() as opened:
        producer = await opened.enter_async_context(client_of(app, OF_PRODUCERS))
        done: list[str] = []
        workers = []
        for _ in range(3):
            client = await opened.enter_async_context(client_of(app, OF_WORKERS))
            worker = Worker(client, settings=WorkerSettings(concurrency=2, backoff_max_ms=200))

            @worker.task("q", default=True)
            async def handle(job: ClaimedJob) -> None:
                done.append(job.descriptor)

            workers.append(worker)
        async with running(workers[0]), running(workers[1]), running(workers[2]):
            await eventually(lambda: use_of_workers(app).refusals >= 2)
            descriptors = (await producer.enqueue("q", [Job(b"") for _ in range(60)])).descriptors
            for descriptor in descriptors:
                await eventually(partial(state_of, producer, descriptor, JobState.SUCCEEDED))
        assert sorted(done) == sorted(descriptors)
        assert sum(worker.counts.lost for worker in workers) == 0
