"""A real server with a small budget, one a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.servers import PinLaterServer, pinlater_server
from tests.hostile.callers import HostileCaller

BUDGET_BYTES = 64 * 2**20
Starter = Callable[..., PinLaterServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Starts `pinlater serve` on a file, with more `--set` settings."""
    with ExitStack() as stack:

        def one(*settings: str) -> PinLaterServer:
            options = [option for setting in settings for option in ("--set", setting)]
            return stack.enter_context(pinlater_server(tmp_path / "store.db", *options, log=tmp_path / "log"))

        yield one


@pytest.fixture
def server(start: Starter) -> PinLaterServer:
    """With a budget of 64 MiB and a queue `q`."""
    server = start(f"thrift.max_buffered_bytes={BUDGET_BYTES}", "telemetry.loop_lag_interval_ms=5")
    with HostileCaller(server) as caller:
        assert caller.call("createQueue", name="q").exception is None
    return server
