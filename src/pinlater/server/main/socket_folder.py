"""The folder of the Unix sockets by which the processes of one supervisor reach each other.

Files in a folder of mode 0700, not abstract names: every process of the machine can connect to an abstract name, while the folder keeps
other users out. The supervisor makes the folder, locks it while it lives, and removes it. If the supervisor is killed, the last of its
processes removes the folder, or the next supervisor of the same user does, which finds it unlocked.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PREFIX = "pinlater-sockets-"
# The path of a socket has at most 107 bytes on Linux and 103 elsewhere, and the names here have up to 32.
_PATH_BYTES_MAX = 70


class SocketFolder(NamedTuple):
    """`path`: that of the folder, which all processes of the supervisor know."""

    path: str

    @property
    def of_store(self) -> str:
        """Returns where the process that has the store listens for the others."""
        return f"{self.path}/store"

    def of_server(self, address: str) -> str:
        """Returns where the server that announced `address` to the others of its shards listens."""
        return f"{self.path}/{hashlib.sha256(address.encode()).hexdigest()[:24]}"

    def remove(self) -> None:
        """Removes the folder for a process whose supervisor is gone: all processes stop, and none connects again."""
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def socket_folder() -> Iterator[SocketFolder]:
    """A new folder, which is removed at the end. Raises OSError."""
    base = _base()
    _remove_abandoned(base)
    path, lock = _new(base)
    try:
        yield SocketFolder(str(path))
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _new(base: str) -> tuple[Path, int]:
    """Returns a locked folder. Another supervisor that looks for abandoned ones may remove it before it is locked; then the next one is
    taken.
    """
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))  # it has mode 0700
        try:
            lock = _locked(path)
        except OSError:  # no descriptors left, or a file system without locks: another folder would not help
            shutil.rmtree(path, ignore_errors=True)
            raise
        if lock is not None:
            if os.fstat(lock).st_nlink:
                return path, lock
            os.close(lock)


def _base() -> str:
    """The system's folder for temporary files; a short one if that has a long path."""
    base = tempfile.gettempdir()
    return base if len(os.fsencode(base)) <= _PATH_BYTES_MAX else "/tmp"  # noqa: S108 mkdtemp makes a folder of our own in it


def _locked(path: Path) -> int | None:
    """A descriptor that keeps the folder locked, or None if another process has locked it, or it is gone. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_abandoned(base: str) -> None:
    """Removes the folders of killed supervisors of this user."""
    with contextlib.suppress(OSError):
        for path in Path(base).glob(f"{_PREFIX}*"):
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    try:
        found = path.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            return
        if any(not stat.S_ISSOCK(each.lstat().st_mode) for each in path.iterdir()):
            return  # another program's
    except OSError:
        return
    lock = _locked(path)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)
