"""One server, one file: an exclusive lock on `<file>-lock`, which says who holds it.

The kernel drops the lock when its process ends, however it ends, so a stale file is no lock. Weakness: on a network file system
without working `flock` two servers would not see each other; the store belongs on a local disk anyway.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from pinlater.domain.errors import ShardConnectionFailed


class FileLock:
    """The lock on `<path>-lock`, held from `take` to `drop`."""

    def __init__(self, path: Path) -> None:
        path = path.resolve()  # a link to the file is the same store
        self.path = path.with_name(path.name + "-lock")
        self._store = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Raises `ShardConnectionFailed`, naming file and holder, if another process has it."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ShardConnectionFailed(f"Can't make the lock file {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read(descriptor)
            os.close(descriptor)
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise ShardConnectionFailed(f"Can't lock {self.path}: {error.strerror}") from error
            raise ShardConnectionFailed(
                f"{self._store} is in use by another process (pid {holder or 'unknown'}, lock {self.path}); "
                "an embedded store serves one server: stop that one, or give this one a file of its own",
                detail="STORE_IN_USE",
                retryable=False,
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._descriptor = descriptor

    def drop(self) -> None:
        """May be called twice. The file stays: removing it would race with whoever takes it next."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip()
