"""A private database server: its own data folder, port and socket, killed and started again as a test pleases.

Every instance begins as a copy of a template that was initialised once in a session, so that a start takes well under a second.
It runs as its users run it: doublewrite on, a flush at every commit, the kind's own defaults. Only sizes are small, and no
configuration file of the machine is read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.databases.disk import SmallDisk
from tests.databases.server_process import STEP_S, Option, ServerProcess

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

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


class DatabaseServer(ServerProcess):
    """One instance in `folder`, made from the template. Not running until `start`; `remove` ends it for good."""

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
        super().__init__(folder, options, certificates, logs=["output.log", "error.log"])
        self.log = folder / "error.log"  # what comes before there is one is in the other: a library that is missing
        self.socket = folder / "server.sock"
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
    def disk(self) -> SmallDisk:
        """The small disk that it was given (`disk_mib`), to be filled and freed."""
        assert self._disk is not None
        return self._disk

    def remove(self) -> None:
        """Killed, and its folder with it."""
        self.kill()
        if self._disk is not None:
            self._disk.remove()
            self._disk = None
        super().remove()

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
        """One connection is kept for the admin, but a client that is being refused has it for a moment."""
        import asyncmy  # here, since every run of tests loads this module and few need the driver

        deadline = time.monotonic() + _PLACE_S
        while True:
            try:
                return await asyncmy.connect(**settings)
            except asyncmy.errors.OperationalError as error:
                if error.args[0] != _TOO_MANY_CONNECTIONS or settings["user"] != "admin" or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(STEP_S)

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

    def _arguments(self) -> Sequence[str]:
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
        arguments = [argument(name, value) for name, value in (options | self._options).items()]
        self.socket.unlink(missing_ok=True)
        for log in self._logs:
            log.unlink(missing_ok=True)
        return [
            program_first,
            "--no-defaults",
            f"--datadir={self.data}",
            *rest,
            *self.sizes(),
            *self.as_root(),
            *arguments,
        ]

    def _answers(self) -> bool:
        """These servers speak first: any byte says that connections are served."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(self.socket))
                return probe.recv(1) != b""
            except OSError:
                return False


def argument(name: str, value: Option) -> str:
    text = {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value)
    return f"--{name.replace('_', '-')}={text}"
