"""`pinlater demo` on a terminal: it stays until Ctrl-C, and its failed jobs can be looked at and retried. Elsewhere it ends by itself."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pinlater.cli.commands.demo import server as demo_server
from pinlater.cli.commands.demo.server import DemoConsoleFailed, DemoServer
from tests.cli.conftest import COMMAND

INVITATION = "Ctrl-C ends the demo"


class DemoOnTerminal:
    """A demo whose controlling terminal is a pseudo-terminal. `said`: all that it has shown."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._terminal, its = pty.openpty()
        environment = os.environ | {"TMPDIR": str(folder), "TERM": "dumb", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [*COMMAND, "demo", *options], stdin=its, stdout=its, stderr=its, env=environment,
            preexec_fn=lambda: os.login_tty(0),
        )  # fmt: skip
        os.close(its)
        self.said = ""

    def read_until(self, text: str) -> None:
        while text not in self.said:
            piece = self._read()
            assert piece, self.said
            self.said += piece

    def read_to_end(self) -> None:
        while piece := self._read():
            self.said += piece

    def _read(self) -> str:
        with contextlib.suppress(OSError):  # the other end is closed
            return os.read(self._terminal, 65_536).decode()
        return ""

    def press_ctrl_c(self) -> None:
        os.write(self._terminal, b"\x03")

    def hang_up(self) -> None:
        os.close(self._terminal)
        self._terminal = -1

    def address(self, before: str) -> str:
        """The host and port of the URL behind this word."""
        found = re.search(rf"{before}:? (?:http://)?([0-9.:]+)", self.said)
        assert found is not None, self.said
        return found[1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._terminal >= 0:
            os.close(self._terminal)


@contextlib.contextmanager
def demo_on_terminal(folder: Path, *options: str) -> Iterator[DemoOnTerminal]:
    demo = DemoOnTerminal(folder, *options)
    try:
        yield demo
    finally:
        demo.close()


def get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return json.load(answer)


def assert_nothing_remains(demo: DemoOnTerminal, folder: Path) -> None:
    assert list(folder.iterdir()) == []
    host, port = demo.address("server").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_on_a_terminal_it_stays_until_ctrl_c_and_a_retry_of_a_failed_job_succeeds(tmp_path: Path) -> None:
    with demo_on_terminal(tmp_path, "--jobs", "1000") as demo:
        demo.read_until(INVITATION)
        assert "every job ended as it should" in demo.said
        console = demo.address("dashboard")
        failed = get(console, "/v1/queues/demo/jobs?state=failed")["jobs"]
        errors = {job["error_type"]: job["error_text"] for job in failed}
        assert set(errors) == {"ConnectionRefusedError", "LookupError"}
        for text in errors.values():
            assert "in send_mail\n    " in text
        for job in failed:
            press_retry(console, job["descriptor"])
        wait_until_none_failed(console)
        demo.press_ctrl_c()
        demo.read_to_end()
        assert demo.process.wait(60) == 0
        assert "The demo ends, and leaves nothing behind." in demo.said
        assert_nothing_remains(demo, tmp_path)


def press_retry(console: str, descriptor: str) -> None:
    """As the button of the page does."""
    origin = {"Origin": f"http://{console}"}
    form = urllib.request.Request(f"http://{console}/jobs/{descriptor}/run", b"back=/failed&was=failed", origin)
    with urllib.request.urlopen(form, timeout=30) as page:
        assert "Retried 1 job; it is due now" in page.read().decode()


def wait_until_none_failed(console: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        [queue] = get(console, "/v1/stats")["queues"]
        if sum(one["succeeded"] for one in queue["priorities"]) == 1_000:
            return
        assert time.monotonic() < deadline, queue
        time.sleep(0.05)


def test_the_terminal_that_closes_ends_a_demo_that_stays(tmp_path: Path) -> None:
    with demo_on_terminal(tmp_path, "--jobs", "50") as demo:
        demo.read_until(INVITATION)
        assert "failed on purpose" not in demo.said
        demo.hang_up()
        assert demo.process.wait(60) == 143
        assert_nothing_remains(demo, tmp_path)


def test_sigterm_ends_a_demo_that_stays(tmp_path: Path) -> None:
    with demo_on_terminal(tmp_path, "--jobs", "50") as demo:
        demo.read_until(INVITATION)
        demo.process.send_signal(signal.SIGTERM)
        assert demo.process.wait(60) == 143
        assert_nothing_remains(demo, tmp_path)


def test_a_demo_on_a_terminal_ends_by_itself_if_it_is_told_so(tmp_path: Path) -> None:
    with demo_on_terminal(tmp_path, "--jobs", "50", "--no-stay") as demo:
        demo.read_to_end()
        assert demo.process.wait(60) == 0
        assert ("dashboard" in demo.said, INVITATION in demo.said) == (False, False)


def test_without_a_terminal_it_ends_by_itself_with_plain_lines_that_say_how_to_stay() -> None:
    done = subprocess.run([*COMMAND, "demo", "--jobs", "50"], capture_output=True, text=True, check=True)
    first, *_, told, last = done.stdout.splitlines()
    assert (first[:18], told) == ("server: 127.0.0.1:", "every job ended as it should")
    assert last.startswith("`pinlater demo --stay` keeps the server")
    assert "\x1b" not in done.stdout


def test_it_stays_without_a_terminal_if_it_is_told_so(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "demo", "--jobs", "50", "--stay"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("dashboard: "):
                address = urlsplit(line.split()[1]).netloc
            if INVITATION in line:
                break
        assert [queue["queue"] for queue in get(address, "/v1/stats")["queues"]] == ["demo"]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


async def test_a_console_that_does_not_answer_in_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_server, "_CONSOLE_S", 0.01)
    async with DemoServer(tmp_path / "demo.db", console=False) as demo:
        with pytest.raises(DemoConsoleFailed, match="did not start"):
            await demo.console_address()
