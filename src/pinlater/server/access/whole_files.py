"""Files that programs of one machine change and servers read: replaced as a whole, so that a reader finds the old one or the new one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MODE = 0o600


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lets one program of this machine at a time change the files of that name."""
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def others_may_write(descriptor: int) -> bool:
    """Returns whether every user of the machine may write the open file, and so give themselves rights."""
    return bool(os.fstat(descriptor).st_mode & stat.S_IWOTH)


def replace_file(path: Path, text: str, *, like: Path | None = None, check: Callable[[], None] | None = None) -> None:
    """Writes a new file, flushed to disk, and puts it in the place of the old one. A link stays one.

    It keeps the mode, the group and, if that is allowed, the owner of the old file, or of the file `like`; without one, only its owner
    can read and write it. `check` is called just before the replacement. Raises OSError, also if the group can't be kept, and the errors of
    `check`; then nothing changes.
    """
    target = path.resolve()
    readers = target if like is None else like.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            if readers.exists():
                _keep_readers(descriptor, readers.stat())
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        if check is not None:
            check()
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _keep_readers(descriptor: int, status: os.stat_result) -> None:
    """Gives the new file the group, the mode and, as root, the owner of the old one. Raises PermissionError if the group can't be kept:
    a server that reads the file by its group could no longer read it."""
    if os.fstat(descriptor).st_gid != status.st_gid:
        os.fchown(descriptor, -1, status.st_gid)
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, status.st_uid, -1)
    os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
