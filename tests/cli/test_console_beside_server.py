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
from pinlater.server.main.console_process import ConsoleProcess
from pinlater.testing import RealServer
from tests.cli.conftest import COMMAND
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
    with RealServer(tmp_path, "--no-console") as server:
        assert psutil.Process(server.process_id).children() == []
    assert "the console" not in "\n".join(server.said)


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
