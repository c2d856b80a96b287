"""A reader of the docs: types commands, runs programs, and lets servers run beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.databases.ports import free_port
from tests.house.snippets import Block, missing_line

BLOCK_TIMEOUT_S = 60


class Reader:
    """Follows a page in a folder. `9010`, `9998`, `9999` and `8081` in the commands become free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"9010": free_port(), "9998": free_port(), "9999": free_port(), "8081": free_port()}
        binaries = str(Path(sys.executable).parent)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PINLATER_")} | {
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PINLATER_SERVERS": f"127.0.0.1:{self.ports['9010']}",
            "PINLATER_THRIFT_PORT": str(self.ports["9010"]),
            "PINLATER_HTTP_PORT": str(self.ports["9999"]),
            "PINLATER_CONSOLE": "false",
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
        }

    def typed(self, text: str) -> str:
        """The text with the ports of this test."""
        for written, port in self.ports.items():
            text = text.replace(written, str(port))
        return text

    def do(self, block: Block, running: ExitStack | None = None) -> None:
        """Does the block; fails with its output if that differs from the page."""
        text = self.typed(block.text)
        if "save" in block.remarks:
            (self.folder / block.remarks["save"]).write_text(text)
            return
        if "start" in block.remarks and running is not None:
            running.enter_context(self.beside(text, block.remarks["start"]))
            return
        command = (
            [sys.executable, "-c", text] if block.language == "python" else ["bash", "-euo", "pipefail", "-c", text]
        )
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=BLOCK_TIMEOUT_S, check=False,
        )  # fmt: skip
        said = f"line {block.line}:\n{text}\n--- status {done.returncode}\n{done.stdout}{done.stderr}"
        assert (done.returncode != 0) == ("fails" in block.remarks), said
        if block.prints is not None:
            assert missing_line(self.typed(block.prints), done.stdout + done.stderr) is None, said

    def server(self) -> AbstractContextManager[None]:
        """A server on a new SQLite file."""
        return self.beside("pinlater serve --store sqlite:jobs.db", "ready")

    @contextmanager
    def beside(self, text: str, until: str) -> Iterator[None]:
        """Runs `text` in a process group of its own, from its output's first `until` to the end of the page."""
        log = self.folder / f".output-{len(list(self.folder.glob('.output-*')))}"
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {text.strip()}"], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            wait_for_text(log, until, process)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for_text(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once the log has the text; fails with the log if the process ends first, or after a deadline."""
    deadline = time.monotonic() + 60
    while text not in log.read_text(errors="replace"):
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            pytest.fail(f"{'ended' if ended else 'no sign'} before {text!r}:\n{log.read_text(errors='replace')}")
        time.sleep(0.02)
