"""The equipment's own tests run on both kinds of server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.databases.database import DatabaseServer


@pytest.fixture(params=["mariadb", "mysql8"])
def start_server(request: pytest.FixtureRequest) -> Callable[..., DatabaseServer]:
    """Starts private servers of the kind that the test runs on."""
    start: Callable[..., DatabaseServer] = request.getfixturevalue(f"start_{request.param}")
    return start


@pytest.fixture(params=["mariadb", "mysql8"])
def shared_server(request: pytest.FixtureRequest) -> DatabaseServer:
    """The session's server of the kind that the test runs on."""
    server: DatabaseServer = request.getfixturevalue(request.param)
    return server
