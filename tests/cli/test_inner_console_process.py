"""When the console of a server is started again, and with which options: each would take a server and minutes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pinlater.server.config.settings import Settings
from pinlater.server.main.console_process import ConsoleProcess, ConsoleSlot
from pinlater.server.thrift.settings import ThriftSettings


def test_one_that_has_served_is_started_again_and_again() -> None:
    slot = ConsoleSlot(["true"], asyncio.Event())
    assert slot._next_start(1, 0.1, 3, 0.5) is not None
    assert slot._next_start(1, 0.1, 4, 0.5) is None
    slot._has_served = True
    assert slot._next_start(1, 0.1, 99, 0.5) is not None


def test_it_has_the_names_and_trusts_the_proxies_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "users.token"
    names, proxies = ("jobs.example", "fd00::5"), ("10.0.0.5", "fd00::/8")
    settings = Settings(console_names=names, console_trusted_proxies=proxies, console_user_token_file=file)
    options = list(ConsoleProcess(settings, asyncio.Event())._options(9010))
    start = options.index("--name")
    assert options[start : start + 12] == [
        *("--name", "jobs.example", "--name", "fd00::5"),
        *("--trusted-proxy", "10.0.0.5", "--trusted-proxy", "fd00::/8"),
        *("--user-header", "X-Forwarded-User", "--user-token-file", str(file)),
    ]
    without_users = Settings(console_trusted_proxies=proxies)
    options = list(ConsoleProcess(without_users, asyncio.Event())._options(9010))
    assert "--trusted-proxy" in options
    assert "--user-header" not in options


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("127.0.0.1", "127.0.0.1:9010"),
        ("", "127.0.0.1:9010"),
        ("0.0.0.0", "127.0.0.1:9010"),
        ("::", "[::1]:9010"),
        ("10.0.0.7", "10.0.0.7:9010"),
    ],
)
def test_it_calls_the_server_where_that_listens(host: str, server: str) -> None:
    console = ConsoleProcess(Settings(thrift=ThriftSettings(host=host)), asyncio.Event())
    assert console._options(9010)[:2] == ["--server", server]
