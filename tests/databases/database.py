"""A private database server: its own data folder, port and socket, killed and started again as a test pleases.

Every instance begins as a copy of a template that was initialised once in a session, so that a start takes well under a second.
It runs as its users run it: doublewrite on, a flush at every commit, the kind's own defaults. Only sizes are small, and no
configuration file of the machine is read. All calls block; where a loop must go on meanwhile, call them in a thread.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tests.databases.disk import SmallDisk
from tests.databases.ports import free_port

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

Option = str | int | bool

# Servers live in /usr/sbin, which is not where a normal user's shell looks.
_MORE_PLACES = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"]
_START_S = 60.0
_STOP_S = 30.0
_STEP_S = 0.01
_LOG_TAIL = 4_000
_START_TRIES = 5
_PLACE_S = 10.0
_TOO_MANY_CONNECTIONS = 1040

# With what has to be quoted in addresses, SQL and shells. No quote sign: the statements below stay readable.
PASSWORD = "pin:later@tests/#1 %"
# A user as the product has it, and one who may do everything. Only the latter gets around read_only and max_connections.
ACCOUNTS = f"""\
CREATE USER 'pinlater'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES ON *.* TO 'pinlater'@'%';
CREATE USER 'admin'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO 'admin'@'%' WITH GRANT OPTION;
"""


class ServerMissing(Exception):
    """This kind of server can't be run on this machine; the text says what is wanting."""


class ServerFailed(Exception):
    """The server did not start or stop; the text ends with its log."""


def program(name: str, package: str) -> str:
    """The path of a program. Raises `ServerMissing`, naming the Debian package."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_MORE_PLACES]))
    if found is None:
        raise ServerMissing(f"no {name} here (Debian package {package}; scripts/test-packages installs it)")
    return found


class DatabaseServer(ABC):
    """One instance in `folder`, made from the template. Not running until `start`; `remove` ends it for good."""

    kind: ClassVar[str]
    host = "127.0.0.1"
    user = "pinlater"
    password = PASSWORD

    def __init__(
        self,
        folder: Path,
        template: Path,
        options: Mapping[str, Option],
        certificates: Certificates | None = None,
        disk_mib: int | None = None,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "error.log"
        self._output = folder / "output.log"  # what comes before there is a log: a library that is missing
        self.socket = folder / "server.sock"
        self.port = free_port()
        self.certificates = certificates
        self.environment: dict[str, str] = {}  # more of it, for starts to come
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        (folder / "tmp").mkdir()
        self._disk = None if disk_mib is None else SmallDisk(self.data, disk_mib)
        self.data.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=never", f"{template}/.", str(self.data)], check=True)

    # What a kind says about itself.

    @classmethod
    @abstractmethod
    def command(cls) -> list[str]:
        """The server's program, with the arguments that this kind always needs. Raises `ServerMissing`."""

    @classmethod
    @abstractmethod
    def make_template(cls, folder: Path) -> None:
        """Initialises a data folder with `ACCOUNTS` in it. Raises `ServerMissing`."""

    @classmethod
    def sizes(cls) -> list[str]:
        """Small sizes; the log's must be those of the template, else each first start makes the log anew."""
        return ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M"]

    @classmethod
    def as_root(cls) -> list[str]:
        """Started by root, these servers want to hear that this is meant."""
        return ["--user=root"] if os.geteuid() == 0 else []

    # What a test does with it.

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def disk(self) -> SmallDisk:
        """The small disk that it was given (`disk_mib`), to be filled and freed."""
        assert self._disk is not None
        return self._disk

    @property
    def running(self) -> bool:
        """A process is there, be it stopped by `suspend`."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, **options: Option) -> Self:
        """Runs it and waits until it takes connections. Options (`max_connections=20`) hold from now on, also after a restart."""
        assert not self.running
        self._options |= options
        first = self._process is None
        for left in reversed(range(_START_TRIES)):
            self._launch()
            try:
                self._wait_until_ready()
            except ServerFailed as failure:
                # Somebody took the port between the look and the start. Later ones must be on the same port.
                if not (first and left and "ddress already in use" in str(failure)):
                    raise
                self.port = free_port()
            else:
                return self
        raise AssertionError("unreachable")

    def kill(self) -> None:
        """SIGKILL: what was not flushed is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def stop(self) -> None:
        """SIGTERM, an orderly end."""
        if not self.running:
            return
        assert self._process is not None
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"{self.kind} did not end within {_STOP_S} s\n{self.log_tail()}") from None

    def restart(self, **options: Option) -> Self:
        """An orderly stop, if it runs, and a start on the same port; options as at `start`."""
        self.stop()
        return self.start(**options)

    def suspend(self) -> None:
        """SIGSTOP: it keeps its port and its connections and says nothing; the kernel still takes connections for it."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        while not self._is_suspended():
            assert time.monotonic() < deadline
            time.sleep(_STEP_S)

    def resume(self) -> None:
        """SIGCONT: goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Killed, and its folder with it."""
        self.kill()
        if self._disk is not None:
            self._disk.remove()
            self._disk = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """The end of what it wrote to its log."""
        texts = [file.read_text(errors="replace") for file in (self._output, self.log) if file.exists()]
        return "".join(texts)[-_LOG_TAIL:]

    # Statements of the test itself, past whatever proxy the product uses.

    @property
    def tcp(self) -> dict[str, Any]:
        """`host` and `port`, as drivers name them."""
        return {"host": self.host, "port": self.port}

    def login(self) -> dict[str, Any]:
        """What the product's user logs in with over TCP, as drivers name it."""
        return self.tcp | {"user": self.user, "password": self.password}

    @asynccontextmanager
    async def connect(self, user: str = "admin", **arguments: Any) -> AsyncIterator[Any]:
        """An autocommitting asyncmy connection over the socket; with `**server.tcp` over TCP."""
        place = {} if "host" in arguments else {"unix_socket": str(self.socket)}
        connection = await self._let_in(
            {"user": user, "password": self.password, "autocommit": True} | place | arguments
        )
        try:
            yield connection
        finally:
            await connection.ensure_closed()

    async def _let_in(self, settings: dict[str, Any]) -> Any:
        """Where all places are taken one is left for the admin, but somebody who is being refused has it until he is gone."""
        import asyncmy  # here, since every run of tests loads this module and few need the driver

        deadline = time.monotonic() + _PLACE_S
        while True:
            try:
                return await asyncmy.connect(**settings)
            except asyncmy.errors.OperationalError as error:
                if error.args[0] != _TOO_MANY_CONNECTIONS or settings["user"] != "admin" or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_STEP_S)

    async def execute(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """One statement by the admin, on a connection of its own; its rows."""
        async with self.connect() as connection, connection.cursor() as cursor:
            await cursor.execute(statement, arguments or None)
            return list(await cursor.fetchall() or ())

    async def execute_together(self, statements: Iterable[str]) -> None:
        """All statements by the admin, in one transaction."""
        async with self.connect() as connection, connection.cursor() as cursor:
            await connection.begin()
            for statement in statements:
                await cursor.execute(statement)
            await connection.commit()

    async def drop_databases(self, prefix: str) -> None:
        """Drops the databases whose names begin with `prefix`."""
        named = "SELECT schema_name FROM information_schema.schemata WHERE LEFT(schema_name, %s) = %s"
        for (name,) in await self.execute(named, len(prefix), prefix):
            await self.execute(f"DROP DATABASE `{name}`")

    # How it runs.

    def _launch(self) -> None:
        tls = self.certificates
        options: dict[str, Option] = {
            "port": self.port,
            "bind_address": self.host,
            "socket": str(self.socket),
            "pid_file": str(self.folder / "server.pid"),
            "log_error": str(self.log),
            "tmpdir": str(self.folder / "tmp"),
            "skip_name_resolve": True,
            "innodb_flush_log_at_trx_commit": 1,
            "performance_schema": False,
        }
        if tls is not None:
            options |= {"ssl_ca": str(tls.authority), "ssl_cert": str(tls.certificate), "ssl_key": str(tls.key)}
        program_first, *rest = self.command()
        arguments = [_argument(name, value) for name, value in (options | self._options).items()]
        self.socket.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        output = self._output.open("wb")
        self._process = subprocess.Popen(
            [
                program_first,
                "--no-defaults",
                f"--datadir={self.data}",
                *rest,
                *self.sizes(),
                *self.as_root(),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self.folder,
            env=os.environ | self.environment,
            start_new_session=True,
        )
        output.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if not self.running:
                raise ServerFailed(f"{self.kind} ended while it started\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.kind} was not ready within {_START_S} s\n{self.log_tail()}")
            time.sleep(_STEP_S)

    def _answers(self) -> bool:
        """These servers speak first: any byte says that connections are served."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.socket))
                return probe.recv(1) != b""
            except OSError:
                return False

    def _is_suspended(self) -> bool:
        # The field after the name, which is in brackets and may hold anything.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _argument(name: str, value: Option) -> str:
    text = {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value)
    return f"--{name.replace('_', '-')}={text}"
