"""Fixtures for pytest. Request them by one line in the top `conftest.py`: `pytest_plugins = ["pinlater.testing.plugin"]`.

They are not an entry point: PinLater is installed where it runs in production, and pytest would then load this module, and rewrite every
module of PinLater, in each run of any tests.

While it is loaded, clients connect to an `InProcessService` or a `RealServer` of the test run, and to no other server: otherwise, a test
that forgot to redirect its worker would enqueue in production. A test marked `pinlater_real_server` may connect to any.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from pinlater.client import _connection
from pinlater.client._servers import ServerAddress
from pinlater.testing.clock import TurnedClock
from pinlater.testing.errors import RealServerReached
from pinlater.testing.in_process import InProcessService
from pinlater.testing.real_server import RealServer

MARKER = "pinlater_real_server"


class ConnectionGuard:
    """Refuses connections to servers that do not belong to the test run, except for tests with the marker."""

    def __init__(self) -> None:
        self._marked = False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None]:
        """One test with its fixtures."""
        self._marked = item.get_closest_marker(MARKER) is not None
        yield
        self._marked = False

    def check(self, address: ServerAddress) -> None:
        """Raises `RealServerReached`."""
        if self._marked or str(address) in RealServer.addresses():
            return
        raise RealServerReached(
            f"a test was about to connect to the PinLater server {address}, which is not the test run's own. Redirect the worker with "
            "`with pinlater_service.serving(worker):`; let code that makes a client of its own use the service, with "
            "`monkeypatch.setattr(app, 'AsyncClient', lambda *_, **__: pinlater_service.async_client())`, or "
            "`lambda *_, **__: pinlater_service.new_client()` for a Client; "
            f"use the fixture `pinlater_server`; or, if the test needs this server, mark it with @pytest.mark.{MARKER}"
        )


def pytest_configure(config: pytest.Config) -> None:
    """Puts the guard in place until the run ends."""
    config.addinivalue_line("markers", f"{MARKER}: the test may connect to any PinLater server")
    guard, patch = ConnectionGuard(), pytest.MonkeyPatch()
    config.pluginmanager.register(guard, "pinlater-connection-guard")
    patch.setattr(_connection, "check_allowed", guard.check)
    config.add_cleanup(patch.undo)


@pytest.fixture
def pinlater_service() -> Iterator[InProcessService]:
    """An empty in-process service, a new one for each test."""
    with InProcessService() as service:
        yield service


@pytest.fixture
def pinlater_clock(pinlater_service: InProcessService) -> TurnedClock:
    """The clock of `pinlater_service`."""
    return pinlater_service.clock


@pytest.fixture(scope="session")
def pinlater_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A real server on SQLite in a temporary folder, one for the whole session, since it takes about a second to start.

    Tests share it, so each should use queues of its own. A test that kills the server starts it again, or makes a `RealServer` for itself.
    """
    with RealServer(tmp_path_factory.mktemp("pinlater")) as server:
        yield server
