"""Servers for the fault tests: real processes, killed at the end whatever happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.servers import PinLaterServer, pinlater_server
from tests.crash.kill_rounds import SETTINGS
from tests.crash.load_clients import QUEUE
from tests.crash.wire_client import WireClient

ServerMaker = Callable[..., PinLaterServer]


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[ServerMaker]:
    """Starts servers, each on the file named (default: one of this test's own), with the queue made."""
    with ExitStack() as stack:

        def start(store: Path | None = None, **settings: object) -> PinLaterServer:
            env = dict(SETTINGS) | {f"PINLATER_{name.upper()}": str(value) for name, value in settings.items()}
            server = pinlater_server(store or tmp_path / "store.db", log=tmp_path / "server.log", env=env)
            stack.enter_context(server)
            with WireClient(server.port) as client:
                client.create_queue(QUEUE)
            return server

        yield start


@pytest.fixture
def server(start_server: ServerMaker) -> PinLaterServer:
    """One server with the harness's usual settings."""
    return start_server()


@pytest.fixture
def client(server: PinLaterServer) -> Iterator[WireClient]:
    """A client of it."""
    with WireClient(server.port, "test") as made:
        yield made
