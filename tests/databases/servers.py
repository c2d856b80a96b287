"""Starts database servers in a folder of the session's, from templates made once, and sees to it that none outlives the session."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from tests.databases.database import DatabaseServer
from tests.databases.guard import Guard
from tests.databases.redis import RedisServer
from tests.databases.server_process import Option
from tests.databases.zookeeper import ZooKeeperEnsemble, ZooKeeperServer

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

# Names the folder where the workers of a parallel run share templates.
TEMPLATES_VARIABLE = "TEST_SERVER_TEMPLATES"

Kind = TypeVar("Kind", bound=DatabaseServer)


class DatabaseServers:
    """All database servers of a session, for any thread. Nothing is made before the first one is asked for."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._guard: Guard | None = None
        self._templates: dict[str, Path] = {}
        self._certificates: Certificates | None = None
        self._servers: list[DatabaseServer | RedisServer | ZooKeeperEnsemble] = []
        self._numbers = itertools.count(1)
        self._making = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def make(self, kind: type[Kind], *, tls: bool = False, disk_mib: int | None = None, **options: Option) -> Kind:
        """A new instance, not yet started. With `tls` it has a certificate of `certificates`, with `disk_mib` a disk of that size.

        Raises `ServerMissing`, and `NoSmallDisk`, which takes the right to mount.
        """
        kind.command()
        with self._making:
            template = self._template(kind)
            folder = self._home() / f"{kind.kind}-{next(self._numbers)}"
            server = kind(folder, template, options, self.certificates if tls else None, disk_mib)
            self._servers.append(server)
        return server

    def start(self, kind: type[Kind], *, tls: bool = False, disk_mib: int | None = None, **options: Option) -> Kind:
        """A new instance that takes connections."""
        return self.make(kind, tls=tls, disk_mib=disk_mib, **options).start()

    def copy(self, server: Kind) -> Kind:
        """A new instance, not yet started, with the data of one that doesn't run: a replica that had got all of it."""
        assert not server.running
        with self._making:
            replica = type(server)(self._home() / f"{server.kind}-{next(self._numbers)}", server.data, {}, None)
            self._servers.append(replica)
        return replica

    def make_redis(self, *, tls: bool = False, program: str | None = None, **options: Option) -> RedisServer:
        """A new, empty Redis, not yet started; `program`: another server's. Raises `ServerMissing`."""
        if program is None:
            RedisServer.command()
        with self._making:
            folder = self._home() / f"redis-{next(self._numbers)}"
            server = RedisServer(folder, options, self.certificates if tls else None, program)
            self._servers.append(server)
        return server

    def start_redis(self, *, tls: bool = False, program: str | None = None, **options: Option) -> RedisServer:
        """A new, empty Redis that takes connections."""
        return self.make_redis(tls=tls, program=program, **options).start()

    def copy_redis(self, server: RedisServer) -> RedisServer:
        """A new Redis, not yet started, with the log and the options of one that doesn't run."""
        assert not server.running
        with self._making:
            replica = RedisServer(self._home() / f"redis-{next(self._numbers)}", server.options, server.certificates)
            self._servers.append(replica)
        shutil.copytree(server.data, replica.data, dirs_exist_ok=True)
        return replica

    def make_zookeeper(self, servers: int) -> ZooKeeperEnsemble:
        """A new, empty ensemble, not yet started. Raises `ServerMissing`."""
        ZooKeeperServer.command()
        with self._making:
            ensemble = ZooKeeperEnsemble(self._home() / f"zookeeper-{next(self._numbers)}", servers)
            self._servers.append(ensemble)
        return ensemble

    @property
    def certificates(self) -> Certificates:
        """The session's authority and the servers' certificate."""
        if self._certificates is None:
            from tests.databases.certificates import make_certificates  # here, since few need its library

            self._certificates = make_certificates(self._home() / "certificates")
        return self._certificates

    def end(self) -> None:
        """Every server is gone, and every file."""
        with ExitStack() as stack:  # each gets its turn, whatever becomes of the others
            if self._guard is not None:
                stack.callback(self._guard.end)
            for server in self._servers:
                stack.callback(server.remove)
        self._servers.clear()
        self._guard = self._folder = self._certificates = None
        self._templates.clear()

    def _home(self) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pinlater-servers-"))
            self._guard = Guard(self._folder)
        return self._folder

    def _template(self, kind: type[DatabaseServer]) -> Path:
        if kind.kind not in self._templates:
            shared = os.environ.get(TEMPLATES_VARIABLE)
            if shared:
                self._templates[kind.kind] = _shared_template(Path(shared), kind)
            else:
                self._templates[kind.kind] = self._home() / f"template-{kind.kind}"
                kind.make_template(self._templates[kind.kind])
        return self._templates[kind.kind]


def _shared_template(folder: Path, kind: type[DatabaseServer]) -> Path:
    """The template in a folder that all workers of a parallel run use. The first worker makes it, the others wait."""
    template = folder / kind.kind
    with (folder / f"{kind.kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            unfinished = folder / f"{kind.kind}-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            kind.make_template(unfinished)
            unfinished.rename(template)
    return template
