"""Fixtures for pytest. Ask for them by one line in the top `conftest.py`: `pytest_plugins = ["pinlater.testing.plugin"]`.

They don't offer themselves through an entry point: who runs PinLater in production has it installed, and would then load this, and
have pytest rewrite every module of PinLater, in each run of any tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pinlater.testing.clock import TurnedClock
from pinlater.testing.in_process import InProcessService
from pinlater.testing.real_server import RealServer


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

    Tests share it, so each should use queues of its own. One that kills the server starts it again, or makes a `RealServer` for itself.
    """
    with RealServer(tmp_path_factory.mktemp("pinlater")) as server:
        yield server
