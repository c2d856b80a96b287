"""A private Redis: its own folder, port and append-only file, killed and started again as a test pleases.

It begins empty, so it needs no template and starts in a few milliseconds. By default it flushes every answer (`appendfsync always`);
options are Redis' own, with underscores: `RedisServer(folder, {"appendfsync": "everysec", "maxmemory": "50mb"})`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.databases.ports import free_port
from tests.databases.server_process import STEP_S, Option, ServerProcess, program

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

_NO_FLUSH_BEGINS = 0.25, 0.75  # parts of a second


class RedisServer(ServerProcess):
    """One instance in `folder`. Not running until `start`; `remove` ends it for good."""

    kind = "redis"

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Option] | None = None,
        certificates: Certificates | None = None,
        program: str | None = None,
    ) -> None:
        super().__init__(folder, options or {}, certificates, logs=["output.log"])
        self._program = program
        self.tls_port = free_port() if certificates is not None else None
        self.data.mkdir()

    @classmethod
    def command(cls) -> list[str]:
        """The server's program; TEST_REDIS_PROGRAM names another one, as `valkey-server`. Raises `ServerMissing`."""
        return [program(os.environ.get("TEST_REDIS_PROGRAM", "redis-server"), "redis-server")]

    def kill_once_written(self) -> None:
        """SIGKILL at a moment at which all that was answered is in the log: with `appendfsync everysec` not every one is.

        What is answered while the log is being flushed waits in Redis' own memory for that to end. A flush begins with the first write of
        a second, so if in the middle of one none is under way, none begins before the kill.
        """
        begins, ends = _NO_FLUSH_BEGINS
        quiet = 0
        with self.session() as ask:
            while quiet < 2:  # what had waited is written after the first look, and may have begun another flush
                part = time.time() % 1
                if begins < part < ends:
                    quiet = quiet + 1 if int(ask("INFO", "persistence")["aof_pending_bio_fsync"]) == 0 else 0
                    time.sleep(STEP_S)
                else:
                    quiet = 0
                    time.sleep((begins - part) % 1 + STEP_S)
            self.kill()

    def execute(self, *words: str | bytes | int) -> Any:
        """One command by the test itself, past whatever proxy the product uses; its answer, undecoded."""
        with self.session() as ask:
            return ask(*words)

    @contextlib.contextmanager
    def session(self) -> Iterator[Callable[..., Any]]:
        """`execute` for many commands on one connection."""
        # Here, since every run of tests loads this module and few need the driver.
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        password = self._options.get("requirepass")
        client: Any = redis.Redis(
            self.host,
            self.port,
            password=None if password is None else str(password),
            protocol=2,
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            yield client.execute_command
        finally:
            client.close()

    # How it runs.

    def _arguments(self) -> Sequence[str]:
        tls = self.certificates
        options: dict[str, Option] = {
            "port": self.port,
            "bind": self.host,
            "dir": str(self.data),
            "set_proc_title": False,  # the guard knows its servers by their folder
            "save": "",
            "appendonly": True,
            "appendfsync": "always",
            "daemonize": False,
            "databases": 16,
        }
        if tls is not None and self.tls_port is not None:
            options |= {
                "tls_port": self.tls_port,
                "tls_ca_cert_file": str(tls.authority),
                "tls_cert_file": str(tls.certificate),
                "tls_key_file": str(tls.key),
                "tls_auth_clients": False,
            }
        arguments: list[str] = []
        for name, value in (options | self._options).items():
            words = [{True: "yes", False: "no"}[value]] if isinstance(value, bool) else str(value).split(" ")
            arguments += [f"--{name.replace('_', '-')}", *words]
        return [*([self._program] if self._program else self.command()), *arguments]

    def _answers(self) -> bool:
        """PONG, or an error that says that it does answer; but not that it is loading."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                answer = probe.recv(100)
                return bool(answer) and not answer.startswith(b"-LOADING")
        except OSError:
            return False
