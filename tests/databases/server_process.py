"""A server of a test's own as a process: its folder and port, killed, suspended and started again as a test pleases.

All calls block; where a loop must go on meanwhile, call them in a thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from tests.databases.ports import free_port

if TYPE_CHECKING:
    from tests.databases.certificates import Certificates

Option = str | int | bool

# Servers live in /usr/sbin, which is not where a normal user's shell looks.
_MORE_PLACES = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"]
_START_S = 60.0
_STOP_S = 30.0
STEP_S = 0.01
_LOG_TAIL = 4_000
_START_TRIES = 5


class ServerMissing(Exception):
    """This kind of server can't be run on this machine; the text says what is missing."""


class DatabaseServerFailed(Exception):
    """The server did not start or stop; the text ends with its log."""


def program(name: str, package: str) -> str:
    """The path of a program. Raises `ServerMissing`, naming the Debian package."""
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_MORE_PLACES]))
    if found is None:
        raise ServerMissing(f"no {name} here (Debian package {package}; scripts/test-packages installs it)")
    return found


class ServerProcess(ABC):
    """One instance in `folder`. Not running until `start`; `remove` ends it for good.

    `environment`: more of it, for starts to come.
    """

    kind: ClassVar[str]
    host = "127.0.0.1"

    def __init__(
        self, folder: Path, options: Mapping[str, Option], certificates: Certificates | None, *, logs: Sequence[str]
    ) -> None:
        """`logs`: the files in the folder that the server writes; the first takes what it prints."""
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.certificates = certificates
        self.environment: dict[str, str] = {}
        self._logs = [folder / name for name in logs]
        self._options = dict(options)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)

    # What a kind says about itself.

    @abstractmethod
    def _arguments(self) -> Sequence[str]:
        """The program with its arguments, for a start now."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it serves connections."""

    # What a test does with it.

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
        """Runs it and waits until it takes connections. Options (`max_connections=20`) hold from now on, also after a restart."""
        assert not self.running
        self._options |= options
        first = self._process is None
        for left in reversed(range(_START_TRIES)):
            self._launch()
            try:
                self._wait_until_ready()
            except DatabaseServerFailed as failure:
                # Another process took the port between the look and the start. Later ones must be on the same port.
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
            raise DatabaseServerFailed(f"{self.kind} did not end within {_STOP_S} s\n{self.log_tail()}") from None

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
            time.sleep(STEP_S)

    def resume(self) -> None:
        """SIGCONT: goes on as if nothing had been."""
        os.kill(self.pid, signal.SIGCONT)

    def remove(self) -> None:
        """Killed, and its folder with it."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log_tail(self) -> str:
        """The end of what it wrote to its logs."""
        texts = [file.read_text(errors="replace") for file in self._logs if file.exists()]
        return "".join(texts)[-_LOG_TAIL:]

    # How it runs.

    def _launch(self) -> None:
        with self._logs[0].open("ab") as output:
            self._process = subprocess.Popen(
                self._arguments(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if not self.running:
                raise DatabaseServerFailed(f"{self.kind} ended while it started\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise DatabaseServerFailed(f"{self.kind} was not ready within {_START_S} s\n{self.log_tail()}")
            time.sleep(STEP_S)

    def _is_suspended(self) -> bool:
        # The field after the name, which is in brackets and may hold anything.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
