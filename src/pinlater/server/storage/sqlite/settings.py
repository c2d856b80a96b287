"""Settings of the SQLite store. The defaults were measured; few people will ever want others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """`inline_commit_us`: commits that take less run on the event loop itself, others in their own thread."""

    inline_commit_us: Annotated[int, Meta(ge=0, le=10_000_000)] = 150
    """Commits that take less, in microseconds, run on the event loop, others in their own thread."""
    transaction_ms_max: int = 10
    """How long one shared transaction may grow before it is committed."""
    waiting_calls_max: int = 10_000
    """Most store calls that wait for the writer."""
    checkpoint_interval_ms: int = 1_000
    """How often the write-ahead log is copied into the file."""
    wal_restart_pages: int = 1_000
    """A write-ahead log of more pages, and longer than its reserve, is copied sooner and cut."""
    wal_reserve_kib: int = 8 * 1024
    """Length that the write-ahead log is given at the start: flushing a file that grows takes twice as long."""
    cache_kib: int = 16 * 1024
    """Page cache of the writer."""
    reader_threads: int = 2
    """Threads, each with its own connection, for scans."""
    waiting_reads_max: int = 1_000
    """Most scans that wait for a reader."""
    busy_timeout_ms: int = 1_000
    """How long to wait for a lock on the file that another program holds."""
    lookup_inline_max: Annotated[int, Meta(ge=0, le=1_000_000)] = 16
    """Lookups of up to this many jobs run on the event loop, longer ones in a reader thread."""
