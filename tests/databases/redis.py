"""A private Redis: its own folder, port and append-only file, killed and started again as a test pleases.

It begins empty, so it needs no template and starts in a few milliseconds. By default it flushes every answer (`appendfsync always`);
options are Redis' own, with underscores: `RedisServer(folder, {"appendfsync": "everysec", "maxmemory": "50mb"})`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.databases.database import Option, ServerFailed, program
from tests.databases.ports import free_port

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

_START_S = 30.0
_STOP_S = 20.0
_STEP_S = 0.01
_START_TRIES = 5
_LOG_TAIL = 4_000
_NO_FLUSH_BEGINS = 0.25, 0.75  # parts of a second


class RedisServer:
    """One instance in `folder`. Not running until `start`; `remove` ends it for good."""

    kind = "redis"
    host = "127.0.0.1"

    def __init__(
        self,
        folder: Path,
        options: Mapping[str, Option] | None = None,
        certificates: Certificates | None = None,
        program: str | None = None,
    ) -> None:
        self._program = program
        self.environment: dict[str, str] = {}  # more of it, for starts to come
        self.folder = folder
        self.data = folder / "data"
        self.log = folder / "output.log"
        self.port = free_port()
        self.certificates = certificates
        self.tls_port = free_port() if certificates is not None else None
        self._options: dict[str, Option] = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.data.mkdir(parents=True)

    @classmethod
    def command(cls) -> list[str]:
        """The server's program; TEST_REDIS_PROGRAM names another one, as `valkey-server`. Raises `ServerMissing`."""
        return [program(os.environ.get("TEST_REDIS_PROGRAM", "redis-server"), "redis-server")]

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host}:{self.port}"

    @property
    def options(self) -> dict[str, Option]:
        """Those that it was given, at the first start and later ones."""
        return dict(self._options)

    @property
    def running(self) -> bool:
        """A process is there, be it stopped by `suspend`."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, **options: Option) -> Self:
        """Runs it and waits until it answers. Options hold from now on, also after a restart."""
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
        """SIGKILL: what was not flushed may be gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

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
                    time.sleep(_STEP_S)
                else:
                    quiet = 0
                    time.sleep((begins - part) % 1 + _STEP_S)
            self.kill()

    def stop(self) -> None:
        """SIGTERM: everything is flushed."""
        if not self.running or self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"Redis did not end within {_STOP_S} s\n{self.log_tail()}") from None

    def restart(self, **options: Option) -> Self:
        """An orderly stop, if it runs, and a start on the same port."""
        self.stop()
        return self.start(**options)

    def suspend(self) -> None:
        """SIGSTOP: it keeps its port and its connections and says nothing."""
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_S
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
            time.sleep(_STEP_S)

    def resume(self) -> None:
        """SIGCONT: goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Killed, and its folder with it."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """The end of what it wrote to its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

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

    def _launch(self) -> None:
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
        output = self.log.open("ab")
        self._process = subprocess.Popen(
            [*([self._program] if self._program else self.command()), *arguments],
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
                raise ServerFailed(f"Redis ended while it started\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"Redis was not ready within {_START_S} s\n{self.log_tail()}")
            time.sleep(_STEP_S)

    def _answers(self) -> bool:
        """PONG, or an error that says that it does answer; but not that it is loading."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                answer = probe.recv(100)
                return bool(answer) and not answer.startswith(b"-LOADING")
        except OSError:
            return False
