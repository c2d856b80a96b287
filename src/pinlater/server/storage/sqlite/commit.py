"""The conditions of a COMMIT: the files that were opened must still be there; and it runs on the loop while commits are quick, in a
thread while they are not.

A file that was moved or deleted can be written to for as long as it is open, and the data are lost when it is closed. So no
transaction commits, and no call is acknowledged, while one is away. The same applies to the lock file, which tells the next server that
the store is in use. Costs three calls of `stat` a transaction.

A time taken in the thread includes waiting for the interpreter's lock and so says little about the disk; now and then, when the thread's
best time is promising, one commit is tried on the loop again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from pinlater.domain.errors import ShardConnectionFailed

_PROBE_EVERY = 64
_HOPEFUL = 4
_STEPS = 32
# On an idle store an inline commit delays no other call, and a hand-over is most expensive when everything sleeps: the commit may take
# this many times as long on the loop.
_IDLE_TIMES = 10

Work = Callable[[], float]
Done = Callable[[float | None, BaseException | None], None]


class FileIdentity:
    """Remembers which files were opened: the store, its write-ahead log and its lock file, which must exist by now."""

    def __init__(self, path: Path, lock: Path) -> None:
        # Names as bytes, which need not be encoded for each `stat`, with the device and the inode.
        self._files: list[tuple[bytes, int, int]] = []
        for name in (path, f"{path}-wal", lock):
            found = os.stat(name)  # noqa: PTH116 - as in `check`
            self._files.append((os.fsencode(name), found.st_dev, found.st_ino))

    def check(self) -> None:
        """Raises `ShardConnectionFailed` while one of the files is gone or has been replaced."""
        for name, device, inode in self._files:
            try:
                found = os.stat(name)  # noqa: PTH116 - this is on the way of each transaction
                if found.st_ino == inode and found.st_dev == device:
                    continue
                what = "is not the file that was opened: another one has taken its place"
            except OSError as error:
                what = f"is gone ({error.strerror}): it was moved or deleted under the running server"
            raise ShardConnectionFailed(
                f"{os.fsdecode(name)} {what}. Nothing is stored until it is back, or the server is restarted",
                detail="STORE_GONE",
            )

    def lengths(self) -> tuple[int, int]:
        """The bytes of the store and of its log. Raises as `check` does."""
        self.check()
        store, log, _ = self._files
        return os.stat(store[0]).st_size, os.stat(log[0]).st_size  # noqa: PTH116 - as in `check`


class CommitPace:
    """A running median of the duration of a commit on the loop: it moves by a small step towards each sample, whatever the sample's
    size."""

    __slots__ = ("_best_s", "_limit_s", "_median_s", "_since_probe", "_step_s", "_usual_s")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._step_s = limit_s / _STEPS
        self._median_s = limit_s / 2
        self._usual_s = limit_s  # of all commits, wherever they ran
        self._since_probe = 0
        self._best_s = 0.0

    def inline(self, *, idle: bool = False) -> bool:
        """Returns whether the next commit should run on the loop. `idle`: the store has had nothing to do lately."""
        if idle and self._usual_s < self._limit_s * _IDLE_TIMES:
            return True
        if self._median_s < self._limit_s:
            return True
        self._since_probe += 1
        if self._since_probe < _PROBE_EVERY:
            return False
        self._since_probe = 0
        best, self._best_s = self._best_s, 0.0
        return 0 < best < self._limit_s * _HOPEFUL

    def took(self, seconds: float, *, inline: bool) -> None:
        """Notes how long a commit took."""
        if inline:
            self._median_s += self._step_s if seconds > self._median_s else -self._step_s
        else:
            self._best_s = min(self._best_s or seconds, seconds)
        step = self._step_s * _IDLE_TIMES
        self._usual_s += step if seconds > self._usual_s else -step


class CommitThread:
    """Runs one piece of work at a time and notifies the loop: `done(result, None)` or `done(None, error)`.

    A SimpleQueue there and `call_soon_threadsafe` back is the cheapest hand-over that there is.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[Work, Done] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name="sqlite-commit", daemon=True)
        self._thread.start()

    def run(self, work: Work, done: Done) -> None:
        self._queue.put((work, done))

    def stop(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, done = item
            result: float | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001 the loop decides what it means
                error = raised
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, result, error)
