"""Two servers to hold to their promises: a real process on SQLite, one a module, and one in this process with a clock to turn."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from bench.servers import PinLaterServer, pinlater_server
from pinlater.domain.clock import SystemClock
from pinlater.server.config.load import load
from pinlater.server.main.app import App
from tests.promises.running_server import RunningServer, start_server
from tests.promises.wire import Wire
from tests.quick_hash import quick_hash

PASSWORD = "open sesame"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PinLaterServer]:
    """`pinlater serve` on a file of its own."""
    folder = tmp_path_factory.mktemp("promises")
    env = {"PINLATER_ADMIN_PASSWORD_HASH": quick_hash(PASSWORD)}
    with pinlater_server(folder / "store.db", log=folder / "log", env=env) as started:
        yield started
        assert "Traceback" not in started.output(), started.output()[-5_000:]


@pytest.fixture
async def connect(server: PinLaterServer) -> AsyncIterator[Callable[..., Awaitable[Wire]]]:
    """Makes connections to it."""
    async with AsyncExitStack() as stack:

        async def one(source: str = "tests") -> Wire:
            wire = await Wire.connect(server.port, source)
            stack.push_async_callback(wire.close)
            return wire

        yield one


@pytest.fixture
async def wire(connect: Callable[..., Awaitable[Wire]]) -> Wire:
    """One connection to it."""
    return await connect()


@pytest.fixture
async def queue(wire: Wire) -> str:
    """A queue of this test's own."""
    return await wire.create(f"queue_{next(_numbers)}")


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[RunningServer]]]:
    """Starts servers in this process; arguments as for `start_server`."""
    servers: list[RunningServer] = []

    async def one(*arguments: object, **more: object) -> RunningServer:
        servers.append(await start_server(*arguments, **more))  # type: ignore[arg-type]
        return servers[-1]

    yield one
    for running in servers:
        await running.close()


@pytest.fixture(params=["memory", "sqlite"])
async def running(
    start: Callable[..., Awaitable[RunningServer]], store: Path, request: pytest.FixtureRequest
) -> RunningServer:
    """One shard, everything by default, on each store."""
    return await start(file=store if request.param == "sqlite" else None)


@pytest.fixture
async def here(running: RunningServer) -> Wire:
    """A connection to `running`, with the queue `q` made."""
    wire = await running.connect()
    await wire.create("q")
    return wire


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A file for a store."""
    return tmp_path / "store.db"


@pytest.fixture
async def run() -> AsyncIterator[Callable[..., Awaitable[App]]]:
    """Starts servers with these settings; nothing periodic runs by itself before an hour is over."""
    apps: list[App] = []

    async def start(clock: SystemClock | None = None, **flags: object) -> App:
        hour = {f"maintenance.{name}_interval_ms": 3_600_000 for name in ("sweep", "file", "refresh", "garbage", "due")}
        ports = {"store": "memory:", "thrift.port": 0, "http.port": 0}
        settings = load(None, {}, ports | hour | flags).settings
        if clock is not None:  # one that is turned looks like a server that stood still
            settings = replace(settings, thrift=replace(settings.thrift, standstill_s=math.inf))
        app = App(settings, clock=clock)
        await app.start()
        apps.append(app)
        return app

    yield start
    for app in apps:
        await app.stop(5)
