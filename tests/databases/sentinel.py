"""Sentinels that watch over one master and its replicas, as quick in their judgement as tests need them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.databases.ports import free_port
from tests.databases.redis import RedisServer
from tests.databases.server_process import DatabaseServerFailed

_DEADLINE_S = 20.0
_STEP_S = 0.02
_DOWN_AFTER_MS = 500


class Sentinels:
    """`count` processes in `folder`, agreed on `master`, which they log in to, under `name`. Used as a context."""

    def __init__(
        self, folder: Path, master: RedisServer, user: str, password: str, *, name: str = "jobs", count: int = 3
    ) -> None:
        self.name = name
        self.ports = [free_port() for _ in range(count)]
        self._master = master
        self._login = user, password
        self._folder = folder
        self._started = contextlib.ExitStack()

    @property
    def query(self) -> str:
        """What names them in a URL."""
        return "&".join([*(f"sentinel=127.0.0.1:{port}" for port in self.ports), f"master={self.name}"])

    @property
    def addresses(self) -> list[str]:
        """`host:port` of each."""
        return [f"127.0.0.1:{port}" for port in self.ports]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as started:
            for port in self.ports:
                started.callback(_kill, self._launch(port))
            self.wait_for_master(self._master.port)
            self._wait(lambda: all(self._knows_all(port) for port in self.ports), "the Sentinels don't know each other")
            self._started = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def wait_for_master(self, port: int) -> None:
        """Until all of them say that the master is there."""
        self._wait(lambda: all(self._master_port(one) == port for one in self.ports), f"no failover to {port}")

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        folder = self._folder / f"sentinel-{port}"
        folder.mkdir(parents=True)
        configuration = folder / "sentinel.conf"
        quorum = len(self.ports) // 2 + 1
        name, master, (user, password) = self.name, self._master, self._login
        configuration.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile {folder / 'log'}\n"
            f"sentinel monitor {name} {master.host} {master.port} {quorum}\n"
            f"sentinel auth-user {name} {user}\n"
            f'sentinel auth-pass {name} "{password}"\n'
            f"sentinel down-after-milliseconds {name} {_DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {name} 3000\n"
        )
        command = [*RedisServer.command(), str(configuration), "--sentinel"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)

    def _master_port(self, port: int) -> int | None:
        with contextlib.suppress(redis.RedisError), redis.Redis("127.0.0.1", port) as client:
            found = client.sentinel_get_master_addr_by_name(self.name)
            return None if found is None else int(found[1])
        return None

    def _knows_all(self, port: int) -> bool:
        """The other Sentinels, and a replica: without these no failover is agreed on, and there is no new master."""
        with contextlib.suppress(redis.RedisError), redis.Redis("127.0.0.1", port) as client:
            about = client.sentinel_master(self.name)
            return int(about["num-other-sentinels"]) == len(self.ports) - 1 and int(about["num-slaves"]) > 0
        return False

    def _wait(self, what: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not what():
            if time.monotonic() > deadline:
                logs = [(self._folder / f"sentinel-{port}" / "log").read_text()[-2000:] for port in self.ports]
                raise DatabaseServerFailed("\n".join([complaint, *logs]))
            time.sleep(_STEP_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
