"""One server, one file: an exclusive lock on the database file itself, and one on `<file>-lock`, which names its holder.

The first works whatever the name of the file is: a hard link or a bind mount is another name for the same file. The second tells a refused
process which process has the file. Both are `flock`, which is independent of the locks that SQLite takes, and which the kernel drops when
the process ends, however it ends, so a stale file is not a lock.

SQLite's own locks are the process's, and the kernel drops all of them as soon as the process closes any descriptor of the file. So the
descriptor here is opened before SQLite opens the file and closed after SQLite closed it, and a process never opens a file that it has
locked already.

Weakness: on a network file system without working `flock` two servers would not see each other; the store belongs on a local disk anyway.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from pinlater.domain.errors import ShardConnectionFailed

# Only the owner can read and write data of others' jobs.
MODE = 0o600
# (device, inode) of the files that this process has locked; the kernel can't be asked without opening the file.
_locked_here: set[tuple[int, int]] = set()


class FileLock:
    """The locks on `path` and `<path>-lock`, held from `take` to `drop`. Makes both files if they are missing."""

    def __init__(self, path: Path) -> None:
        path = path.resolve()  # a link to the file is the same store
        self.path = path.with_name(path.name + "-lock")
        self._store = path
        self._descriptors: list[int] = []
        self._identity = (0, 0)

    def take(self) -> None:
        """Raises `ShardConnectionFailed`, naming file and holder, if another process, or this one, has it."""
        try:
            self._lock_store()
            self._lock_holder_file()
        except BaseException:
            self._release()
            raise

    def _lock_store(self) -> None:
        if self._store.exists() and _identity(self._store.stat()) in _locked_here:
            raise self._in_use()
        self._lock(self._store)
        self._identity = _identity(os.fstat(self._descriptors[0]))
        _locked_here.add(self._identity)

    def _lock_holder_file(self) -> None:
        descriptor = self._lock(self.path)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def _lock(self, path: Path) -> int:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        except OSError as error:
            reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise ShardConnectionFailed(f"Can't open {path}: {reason}") from error
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in {errno.EWOULDBLOCK, errno.EACCES}:
                raise ShardConnectionFailed(f"Can't lock {path}: {error.strerror}") from error
            raise self._in_use() from error
        return descriptor

    def _in_use(self) -> ShardConnectionFailed:
        return ShardConnectionFailed(
            f"{self._store} is in use by another process (pid {self._holder() or 'unknown'}, lock {self.path}), "
            "maybe under another name of the same file; "
            "an embedded store serves one server: stop that one, or give this one a file of its own",
            detail="STORE_IN_USE",
            retryable=False,
        )

    def _holder(self) -> str:
        """The process that the lock file names; '' if there is none, as under another name of the store."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            return os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        finally:
            os.close(descriptor)

    def drop(self) -> None:
        """Releases the lock. Call it only when SQLite has closed the file; a second call does nothing. The lock file stays: removing it
        would race with the next holder.
        """
        if len(self._descriptors) > 1:
            os.ftruncate(self._descriptors[1], 0)
        self._release()

    def _release(self) -> None:
        _locked_here.discard(self._identity)
        self._identity = (0, 0)
        while self._descriptors:
            os.close(self._descriptors.pop())


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
