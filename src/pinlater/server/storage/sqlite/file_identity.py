"""Checks that the store's paths still name the files that were opened.

A file that was moved or deleted can be written to for as long as it is open, and what is written is lost when it is closed. So no
transaction commits, and no call is acknowledged, while it is away. The same holds for the lock file, which tells the next server that the
store is in use. Costs three calls of `stat` a transaction.
"""

from __future__ import annotations

import os
from pathlib import Path

from pinlater.domain.errors import ShardConnectionFailed


class FileIdentity:
    """Remembers which files were opened: the store, its write-ahead log and its lock file, which must exist by now."""

    def __init__(self, path: Path, lock: Path) -> None:
        # Names as bytes, which need not be encoded for each `stat`, with the device and the inode.
        self._files: list[tuple[bytes, int, int]] = []
        for name in (path, f"{path}-wal", lock):
            found = os.stat(name)  # noqa: PTH116 - as in `check`
            self._files.append((os.fsencode(name), found.st_dev, found.st_ino))

    def check(self) -> None:
        """Raises `ShardConnectionFailed` while one of the files is gone or another one has taken its place."""
        for name, device, inode in self._files:
            try:
                found = os.stat(name)  # noqa: PTH116 - this is on the way of each transaction
                if found.st_ino == inode and found.st_dev == device:
                    continue
                what = "is not the file that was opened: another one has taken its place"
            except OSError as error:
                what = f"is gone ({error.strerror}): it was moved or deleted under the running server"
            raise ShardConnectionFailed(
                f"{os.fsdecode(name)} {what}. Nothing is stored until it is back, or the server started again",
                detail="STORE_GONE",
            )

    def lengths(self) -> tuple[int, int]:
        """The bytes of the store and of its log. Raises as `check` does."""
        self.check()
        store, log, _ = self._files
        return os.stat(store[0]).st_size, os.stat(log[0]).st_size  # noqa: PTH116 - as in `check`
