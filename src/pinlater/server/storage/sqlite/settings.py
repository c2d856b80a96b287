"""Settings of the SQLite store. The defaults were measured; few people will ever want others."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.domain.invalid_settings import InvalidSettings


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """`inline_commit_us`: commits that take less run on the event loop itself, others in their own thread."""

    inline_commit_us: int = 150
    transaction_ms_max: int = 10
    waiting_calls_max: int = 10_000
    checkpoint_interval_ms: int = 1_000
    wal_restart_pages: int = 1_000
    wal_reserve_kib: int = 8 * 1024
    cache_kib: int = 16 * 1024
    reader_threads: int = 2
    waiting_reads_max: int = 1_000
    busy_timeout_ms: int = 1_000
    lookup_inline_max: int = 16

    def __post_init__(self) -> None:
        for field in self.__slots__:
            if getattr(self, field) < (0 if field in {"inline_commit_us", "lookup_inline_max"} else 1):
                raise InvalidSettings(f"{field} must be positive", field)
