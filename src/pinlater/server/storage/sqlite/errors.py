"""Translates SQLite's errors: their cause, and a remedy."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from pinlater.domain.errors import ShardConnectionFailed, StoreFull, Unavailable

_IO_ERROR = sqlite3.SQLITE_IOERR
_FULL = sqlite3.SQLITE_FULL
_FREE_BYTES_MIN = 1024 * 1024


def is_outside_failure(error: BaseException) -> bool:
    """Returns whether the disk or the file failed, rather than a value or our own code."""
    return isinstance(error, sqlite3.OperationalError)


def is_busy(error: BaseException) -> bool:
    """Returns whether another process has the file locked."""
    return (
        isinstance(error, sqlite3.Error) and (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF == sqlite3.SQLITE_BUSY
    )


def is_damage(error: sqlite3.Error) -> bool:
    """Returns whether SQLite found the file damaged, or no database at all."""
    return getattr(error, "sqlite_errorcode", 0) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def translate(error: sqlite3.Error, path: Path) -> Unavailable:
    """Returns `StoreFull` if space is missing, otherwise `ShardConnectionFailed`, with its cause."""
    code = getattr(error, "sqlite_errorcode", 0) or 0
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    full = code == _FULL or (code & 0xFF == _IO_ERROR and _disk_is_full(path))
    hint = "; another program has it locked" if is_busy(error) else ""
    found: Unavailable = StoreFull.of(str(path)) if full else ShardConnectionFailed(f"{path}: {error} ({name}){hint}")
    found.__cause__ = error
    return found


def _disk_is_full(path: Path) -> bool:
    """Returns whether the disk is full. Some file systems answer a write on a full disk with a plain I/O error."""
    try:
        return shutil.disk_usage(path.parent).free < _FREE_BYTES_MIN
    except OSError:
        return False
