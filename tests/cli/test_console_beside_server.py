"""`pinlater serve` runs the console beside itself: started, restarted, ended with the server, and left out."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import pytest

from pinlater.server.config.settings import Settings
from pinlater.server.main import console_process
from pinlater.server.main.console_process import ConsoleProcess, ConsoleSlot
from pinlater.server.thrift.settings import ThriftSettings
from tests.cli.conftest import COMMAND, start_server
from tests.cli.test_without_extras import PROGRAM

READY = "the console is ready"
BESIDE = ["serve", "--set", "console=true", "--store", "memory:", "--thrift-port", "0", "--http-port", "0"]
BESIDE += ["--set", "console_port=0", "--set", "telemetry.log_format=json"]


class Running:
    """A server process and the lines of its log."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def line(self, event: str) -> Any:
        """The next line of the log that begins so."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry = json.loads(line)
            if entry["event"].startswith(event):
                return entry
        raise AssertionError(f"the server has ended without a line {event!r}")

    def console(self) -> psutil.Process:
        [child] = psutil.Process(self.process.pid).children()
        return child

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@contextlib.contextmanager
def serving(*more: str, command: list[str] = COMMAND) -> Iterator[Running]:
    with subprocess.Popen([*command, *BESIDE, *more], stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


def test_it_is_started_again_after_its_death_and_ends_with_the_server() -> None:
    with serving() as server:
        thrift_port = server.line("ready")["thrift_port"]
        first = server.line(READY)
        server.console().kill()
        assert "SIGKILL" in server.line("console ")["event"]
        address = server.line(READY)["address"]
        assert address != first["address"]
        console = server.console()
        assert f"127.0.0.1:{thrift_port}" in console.cmdline()
        assert get(address, "/v1/queues") == {"queues": []}
        assert server.stop() == 0
        assert not console.is_running()


def get(address: str, path: str) -> Any:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)) as connection:
        connection.request("GET", path)
        return json.load(connection.getresponse())


def test_it_ends_when_the_server_is_killed() -> None:
    with serving() as server:
        server.line(READY)
        console = server.console()
        server.process.kill()
        psutil.wait_procs([console], timeout=30)
        assert not console.is_running() or console.status() == psutil.STATUS_ZOMBIE


def test_a_port_in_use_is_a_warning_and_the_server_serves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with serving("--set", f"console_port={port}") as server:
            http_port = server.line("ready")["http_port"]
            entry = server.line("console ")
            assert (entry["level"], entry["reason"][:15]) == ("warning", "can't listen on")
            assert get(f"http://127.0.0.1:{http_port}", "/server_info")["state"] == "ready"
            assert server.stop() == 0


def test_without_its_extra_one_line_says_what_to_install() -> None:
    program = PROGRAM.format(hidden={"starlette"}, arguments=())
    program = program.replace("*()", "*sys.argv[1:]")
    with serving(command=[COMMAND[0], "-c", program]) as server:
        entry = server.line("the console does not run: its extra is missing")
        assert (entry["level"], entry["install"][:12]) == ("info", "pip install ")
        assert server.stop() == 0


def test_no_console_says_nothing_and_starts_none(tmp_path: Path) -> None:
    _, process = start_server(tmp_path, "--no-console")
    assert psutil.Process(process.pid).children() == []
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert "the console" not in (tmp_path / "server.log").read_text()


async def test_it_is_given_up_after_some_starts_that_failed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(console_process, "_FAILED_STARTS_MAX", 0)
    console = ConsoleProcess(Settings(), asyncio.Event(), ["false"])
    console.start(9010)
    async with asyncio.timeout(20):
        while "the console does not run" not in caplog.text:
            await asyncio.sleep(0.01)
    await console.end()
    assert caplog.records[-1].levelno == logging.WARNING


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
