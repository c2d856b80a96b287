"""A file system of a few megabytes for a server's data, so that a test can fill it up."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

_TRIES = 100


class NoSmallDisk(Exception):
    """This user can't mount a file system here."""


class SmallDisk:
    """Mounted on `folder`, in memory: a flush costs nothing on it. Raises `NoSmallDisk`."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        folder.mkdir()
        mount = shutil.which("mount")
        wanted = ["-t", "tmpfs", "-o", f"size={mib}m,mode=0700", "tmpfs", str(folder)]
        if mount is None or subprocess.run([mount, *wanted], capture_output=True, check=False).returncode != 0:
            raise NoSmallDisk("this user can't mount a small file system")

    @property
    def free_bytes(self) -> int:
        """What can still be written."""
        facts = os.statvfs(self.folder)
        return facts.f_bavail * facts.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Takes all the space but `leave_bytes`. The server on it may take some between the look and the taking: then again."""
        for tries_left in reversed(range(_TRIES)):
            with self._filler.open("ab") as file:
                try:
                    os.posix_fallocate(file.fileno(), 0, max(1, file.tell() + self.free_bytes - leave_bytes))
                except OSError as error:
                    if error.errno != errno.ENOSPC or not tries_left:
                        raise
                else:
                    return

    def free(self) -> None:
        """Gives back what `fill` took."""
        self._filler.unlink(missing_ok=True)

    def remove(self) -> None:
        """Gone as soon as no process uses it any more."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"
