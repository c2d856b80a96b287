"""Ends what a test session started, also when the session itself was killed: a process of its own that waits for the session's end.

It holds the reading end of a pipe whose other end only the session has. When that closes, for whatever reason, it kills every
database server whose data lies in the session's folder, or that works in it, and removes the folder. It never looks at any other process.
Its weakness: if this process is killed too, nothing is cleaned up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_DEADLINE_S = 20.0


class Guard:
    """Watches over one folder from now on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C at the terminal is for the session, not for its guard
        )

    def end(self) -> None:
        """All of the folder's processes are gone, and so is the folder."""
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            # A word, not only the end of the pipe: a child that a test forked may still hold it open.
            self._process.communicate(b".", timeout=_DEADLINE_S)
        _clean_up(str(self._folder))  # for a guard that was killed


def processes_of(folder: str) -> list[int]:
    """The database servers with their data somewhere in `folder`."""
    inside = os.fsencode(folder) + b"/"
    wanted = (b"--datadir=" + inside, b"--dir\0" + inside, b"-Dfolder=" + inside)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if any(words in arguments for words in wanted):
            found.append(int(entry.name))
    return found


def mounts_in(folder: str) -> list[str]:
    """Where in `folder` something is mounted."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [place for place in places if place.startswith(f"{folder}/")]


def _clean_up(folder: str) -> None:
    for pid in processes_of(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for place in mounts_in(folder):
        subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
    for _ in range(5):  # what was being written while its writer died
        shutil.rmtree(folder, ignore_errors=True)
        if not Path(folder).exists():
            return


if __name__ == "__main__":
    sys.stdin.buffer.read(1)
    _clean_up(sys.argv[1])
