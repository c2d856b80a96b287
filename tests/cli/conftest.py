"""A real server for the whole session, and the command run in this process."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
import typer

from pinlater.cli import notes
from pinlater.cli.main import app, main
from pinlater.domain.passwords import hash_password
from pinlater.testing.real_server import RealServer
from tests.databases.ports import free_port
from tests.shared_shards.serving import ServedShards, place_of

PASSWORD = "open sesame"
HOST = "jobs-1.example.com"
COMMAND = [sys.executable, "-m", "pinlater"]


def every_command() -> Iterator[tuple[str, Any]]:
    """The words of each command without commands below it, and the command."""
    yield from _below("", typer.main.get_command(app))


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "list_commands"):
        yield words, command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from _below(f"{words} {name}".lstrip(), command.get_command(context, name))


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


_RUN = r"run (\w+) deletes the jobs, also if this command ends; `pinlater bulk stop \w+ \1` stops it"
RUN_DELETES, RUN_DELETES_JSON = rf"{_RUN}\n", rf'\{{"note": "{_RUN}"\}}\n'
RUN_DELETED = rf"{RUN_DELETES}for a day, `pinlater bulk undo \w+ \1` brings them back\n"
"""What a delete by a run says, with RUN_DELETED if it deletes a job."""


class Pinlater:
    """Runs `pinlater ...` in this process, as its entry point would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], address: str) -> None:
        self._monkeypatch = monkeypatch
        self._capfd = capfd
        self.address = address

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        self._capfd.readouterr()
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["pinlater", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
            patch.setenv("PINLATER_SERVERS", self.address)
            with pytest.raises(SystemExit) as ended:
                main()
        taken = self._capfd.readouterr()
        return Done(int(ended.value.code or 0), taken.out, taken.err)

    def ok(self, *arguments: str, stdin: bytes = b"", says: str = "") -> Done:
        """Must end with 0 and say what the regular expression `says`, or nothing, on standard error."""
        done = self(*arguments, stdin=stdin)
        assert done.code == 0
        assert re.fullmatch(says, done.err), done.err
        return done


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the session, on SQLite."""
    settings = (f"admin_password_hash={hash_password(PASSWORD)}", f"advertised_host={HOST}")  # as wide on each machine
    options = (word for setting in settings for word in ("--set", setting))
    with RealServer(tmp_path_factory.mktemp("server"), *options) as server:
        yield server.address


@pytest.fixture
def pinlater(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], server_address: str) -> Pinlater:
    """The command, pointed at the session's server."""
    return Pinlater(monkeypatch, capfd, server_address)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Pinlater:
    """The command, pointed at a port without a listener."""
    return Pinlater(monkeypatch, capfd, "127.0.0.1:1")


@pytest.fixture
def queue(pinlater: Pinlater) -> str:
    """A new queue of the test's own."""
    name = f"q_{uuid4().hex}"
    pinlater.ok("queue", "create", name)
    return name


@pytest.fixture(params=["mysql", "redis"])
def place(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ServedShards:
    """Two shards on the session's database server, and settings to go with them in the environment."""
    place = place_of(request.param, tmp_path, request)
    for name, value in {**place.environment, "PINLATER_HTTP_PORT": str(free_port())}.items():
        monkeypatch.setenv(name, value)
    return place


@pytest.fixture
def shards(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: ServedShards
) -> Callable[..., Done]:
    """The command, with the shard file and without PINLATER_SERVERS."""
    pinlater = Pinlater(monkeypatch, capfd, "")
    return lambda *arguments: pinlater("shards", *arguments, "--shards", str(place.path))


@pytest.fixture
def serve(tmp_path: Path, place: ServedShards, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RealServer]]:
    """Starts a server on the shard file, with these options; its HTTP port is where the command looks."""
    with ExitStack() as running:

        def start(*options: str) -> RealServer:
            server = running.enter_context(RealServer(tmp_path, *options, store=place.store))
            monkeypatch.setenv("PINLATER_HTTP_PORT", str(server.http_port))
            return server

        yield start


def on_terminal(address: str, columns: int, colour: bool, *arguments: str, code: int = 0) -> str:
    """What `pinlater ...` writes to a terminal of that width. Must end with `code`."""
    ours, its = pty.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm", "PINLATER_SERVERS": address}
    environment |= {"NO_COLOR": "" if colour else "1"}
    process = subprocess.Popen([*COMMAND, *arguments], stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    said = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            break
        said += piece
    os.close(ours)
    assert process.wait(30) == code
    return said.decode().replace("\r\n", "\n")


@pytest.fixture
def as_json() -> Iterator[None]:
    notes.use_json(True)
    yield
    notes.use_json(False)
