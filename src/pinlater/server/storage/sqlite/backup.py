"""A copy of the store while a server runs on it.

SQLite's backup interface copies page by page within one read snapshot that is held from the first step to the last: writers continue,
and the copy is the store as it was when the copying began. Without the held snapshot every write between two steps would restart the
copy, so that with a busy server it would never end; `VACUUM INTO` would rebuild each index for a smaller file, at several times the work.
Weakness: the write-ahead log can't start over while the snapshot is held, so it grows for as long as the copy takes.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pinlater.domain.errors import CallerError
from pinlater.server.storage.sqlite import migration
from pinlater.server.storage.sqlite.connection import connect
from pinlater.server.storage.sqlite.errors import is_damage, translate
from pinlater.server.storage.sqlite.lock import MODE
from pinlater.server.storage.sqlite.settings import SqliteSettings

_STEP_PAGES = 1_000


class BackupRefused(CallerError):
    """The source doesn't exist, or the target does."""

    detail = "BACKUP_REFUSED"


def backup(source: Path, target: Path, progress: Callable[[int, int], None] | None = None) -> int:
    """Copies `source` to `target`, which must not exist. Returns its size in bytes. Calls `progress` with (pages done, pages in all).

    The target appears only when it is complete and on the disk.
    """
    if not source.is_file():
        raise BackupRefused(f"There is no store at {source}")
    if target.exists():
        raise BackupRefused(f"{target} exists already and is not overwritten")
    if not target.parent.is_dir():
        raise BackupRefused(f"The folder of {target} does not exist")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    partial.touch(MODE, exist_ok=False)
    try:
        _copy(source, partial, progress)
        _sync(partial)
        os.link(partial, target)  # unlike a rename it refuses to overwrite a file that has appeared meanwhile
    except FileExistsError as error:
        raise BackupRefused(f"{target} exists already and is not overwritten") from error
    except sqlite3.Error as error:
        raise translate(error, source if is_damage(error) else target) from error
    finally:
        partial.unlink(missing_ok=True)
    _sync(target.parent)
    return target.stat().st_size


def _copy(source: Path, partial: Path, progress: Callable[[int, int], None] | None) -> None:
    def told(_: int, remaining: int, total: int) -> None:
        if progress is not None:
            progress(total - remaining, total)

    with closing(connect(source, SqliteSettings(), reader=True)) as reader, closing(sqlite3.connect(partial)) as copy:
        migration.check(reader, source)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM queues").fetchone()  # the snapshot begins with the first read
        reader.backup(copy, pages=_STEP_PAGES, progress=told)
        reader.execute("ROLLBACK")
        copy.execute("PRAGMA journal_mode = DELETE")  # one complete file; a server turns the log on again


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
