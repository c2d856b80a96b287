"""The original's server settings, a `.properties` file with its key names, accepted as it is.

Each of its keys is a setting of ours in another unit, or sets something for which our design has no use; then a warning names its
replacement. Our own settings are possible in the same spelling: the variable's name without PINLATER_, e.g. `HOST`, `HTTP_PORT`,
`JOBS_MAX_BODY_BYTES`. An empty value means not set; if a key occurs twice, the last value counts, as in Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pinlater.server.config.errors import did_you_mean
from pinlater.server.config.kinds import EMBEDDED, SHARDED
from pinlater.server.config.properties import PropertiesInvalid, Property, parse_properties
from pinlater.server.config.schema import ENV_PREFIX, keys
from pinlater.server.config.sources import Given, Origin, SettingsSource

_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?", re.ASCII)


class Same(NamedTuple):
    """A key that is a setting of ours: its path, and, if the units differ, its unit and how many of our units one of it is.

    `also`: a second setting of ours, for another kind of store.
    """

    path: str
    unit: str = ""
    factor: int = 1
    also: str = ""


SAME: Mapping[str, Same] = {
    "ADMIN_PASSWORD_HASH": Same("admin_password_hash"),
    "THRIFT_PORT": Same("thrift.port"),
    "OSTRICH_PORT": Same("http.port"),
    "MAX_CONCURRENT_REQUESTS": Same("thrift.max_concurrent_requests"),
    "SERVER_CONN_MAX_IDLE_TIME_MINUTES": Same("thrift.idle_timeout_s", "minutes", 60),
    "NUM_PRIORITY_LEVELS": Same("jobs.priority_levels"),
    "QUEUE_CONFIG_FILE_PATH": Same("queue_limits_file"),
    "BACKEND_MONITOR_JOB_CLAIMED_TIMEOUT_SECONDS": Same("jobs.claim_timeout_ms", "seconds", 1_000),
    "BACKEND_MONITOR_JOB_FAILED_GC_TTL_HOURS": Same("jobs.failed_ttl_ms", "hours", 3_600_000),
    "BACKEND_MONITOR_JOB_SUCCEEDED_GC_TTL_HOURS": Same("jobs.succeeded_ttl_ms", "hours", 3_600_000),
    "MYSQL_COUNT_LIMIT": Same("jobs.regex_rows_max"),
    "MYSQL_NUM_DB_PER_QUEUE": Same("mysql.databases_per_server"),
    "SHARD_ALLOWED_HOSTNAME_PREFIX": Same("mysql.host_prefix"),
    "BACKEND_SOCKET_TIMEOUT_SECONDS": Same("mysql.statement_timeout_ms", "seconds", 1_000, "redis.command_timeout_ms"),
    "BACKEND_NUM_AUTO_RETRIES": Same("mysql.retries", also="redis.retries"),
}

STORE_KEYS = ("PINLATER_BACKEND", "SQLITE_PATH", "SHARDS_FILE")
SERVER_SET_KEYS = ("SERVER_SET_ENABLED", "SERVER_SET_PATH")

_CONNECTIONS = (
    "a shard is written to over four connections, whatever the load, and read from over mysql.reader_connections"
    " or redis.reader_connections"
)
_LANES = "requests that arrive together share one transaction, so there is nothing to set"

REPLACED: Mapping[str, str] = {
    "MONITOR_LOG_INTERVAL": "what the sweeps did is in /stats.txt and /metrics instead",
    "BACKEND_MONITOR_THREAD_DELAY_SECONDS": "the sweeps are cheap and run every maintenance.sweep_interval_ms"
    " and maintenance.garbage_interval_ms",
    "BACKEND_MONITOR_UPDATE_MAX_SIZE": "the sweeps go on until nothing is left, in small transactions"
    " (maintenance.sweep_batch and maintenance.batch_max)",
    "BACKEND_CONNECTIONS_PER_SHARD": _CONNECTIONS,
    "BACKEND_CONNECTION_MAX_WAIT_MILLIS": "sharding.call_timeout_ms bounds a request's call as a whole",
    "MONITOR_CONNECTIONS_PER_SHARD": _CONNECTIONS,
    "MONITOR_SOCKET_TIMEOUT_SECONDS": "mysql.statement_timeout_ms or redis.command_timeout_ms bounds the sweeps' statements, too,"
    " and sharding.work_timeout_ms a sweep",
    "BACKEND_QUERY_PARALLELISM": _LANES,
    "BACKEND_DEQUEUE_CONCURRENCY_PER_QUEUE_PER_SHARD": "dequeues of one queue are joined into one claim,"
    " and dispatch.max_waiting_dequeues bounds how many wait",
    "REDIS_HEALTH_CHECK_CONSECUTIVE_FAILURES": "sharding.failures_to_open, for stores of every kind",
    "REDIS_HEALTH_CHECK_CONSECUTIVE_SUCCESSES": "a shard out of use is back with its first probe that succeeds",
    "REDIS_HEALTH_CHECK_PING_INTERVAL_SECONDS": "sharding.probe_interval_ms, for stores of every kind",
}


_NO_SHARDS = (
    "SHARDS_FILE, the {name} shard file, is not set (the original took it from -Dbackend_config): set it, or start with --shards <file>;"
    " without a database set PINLATER_BACKEND=sqlite and SQLITE_PATH=<file>"
)


def own_names() -> Mapping[str, str]:
    """Returns our settings in the original's spelling, with their paths."""
    return {key.variable.removeprefix(ENV_PREFIX): path for path, key in keys().items()}


def known_names() -> set[str]:
    """Returns every key that such a file may have."""
    return {*SAME, *REPLACED, *STORE_KEYS, *SERVER_SET_KEYS, *own_names()}


def read_original(path: Path, text: str) -> SettingsSource:
    """Returns the settings of the file, in our keys and units."""
    try:
        entries = {entry.key: entry for entry in parse_properties(text)}
    except PropertiesInvalid as error:
        return SettingsSource({}, (f"{path}:{error.line}: {error}",))
    return _FileTranslation(path, entries).source()


def _backend_fault(name: str) -> str:
    *others, last = known = [*SHARDED, *EMBEDDED]
    return f"{name[:80]!r} is not a backend: {', '.join(others)} or {last} is possible{did_you_mean(name, known)}"


class _FileTranslation:
    """The translation of one file to our keys; collects problems on the way."""

    def __init__(self, path: Path, entries: Mapping[str, Property]) -> None:
        self._path = path
        self._all = entries
        self._set = {name: entry for name, entry in entries.items() if entry.value.strip()}
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def source(self) -> SettingsSource:
        given = [*self._own(), *self._translated(), *self._store(), *self._server_set()]
        self._unknown()
        return SettingsSource({item.path: item for item in given}, tuple(self._problems), tuple(self._warnings))

    def _own(self) -> Iterator[Given]:
        for name, path in own_names().items():
            if name in self._set and name not in SAME and name not in STORE_KEYS:
                yield self._given(path, self._set[name])

    def _translated(self) -> Iterator[Given]:
        for name, same in SAME.items():
            entry = self._set.get(name)
            if entry is None:
                continue
            value = entry.value.strip()
            if same.unit and not _NUMBER.fullmatch(value):
                self._problem(entry, f"{entry.value[:80]!r} is not a number of {same.unit}")
                continue
            raw = round(float(value) * same.factor) if same.unit else None
            for path in filter(None, (same.path, same.also)):
                yield self._given(path, entry, raw)

    def _store(self) -> Iterator[Given]:
        """Yields PINLATER_BACKEND with its path. A store that can't be determined is a problem only if no flag or variable names
        another."""
        backend, file, shards = (self._set.get(name) for name in STORE_KEYS)
        kind = backend.value.strip().lower() if backend else "" if "STORE" in self._set else "mysql"
        if file is not None and kind != "sqlite":
            self._warn(file, "without effect unless PINLATER_BACKEND is sqlite")
        if shards is not None and kind not in SHARDED:
            self._warn(shards, "without effect unless PINLATER_BACKEND is mysql or redis")
        if kind == "sqlite":
            yield self._given("store", backend, f"sqlite:{file.value.strip() if file else 'pinlater.db'}")
        elif kind == "memory":
            yield self._given("store", backend, "memory:")
        elif kind in SHARDED and shards is not None:
            yield self._given("store", shards, f"{kind}:{shards.value.strip()}")
        elif kind in SHARDED:
            absent = "" if backend else "PINLATER_BACKEND is not set, which means mysql, and "
            yield self._given("store", backend)._replace(fault=absent + _NO_SHARDS.format(name=SHARDED[kind].title))
        elif backend is not None:
            yield self._given("store", backend)._replace(fault=_backend_fault(backend.value.strip()))

    def _server_set(self) -> Iterator[Given]:
        """The path counts unless SERVER_SET_ENABLED says false."""
        enabled, file = (self._set.get(name) for name in SERVER_SET_KEYS)
        switch = enabled.value.strip().lower() if enabled else "true"
        if enabled and switch not in ("true", "false"):
            self._problem(enabled, f"{enabled.value[:80]!r} is not true or false")
        elif enabled and switch == "true" and file is None:
            self._problem(enabled, "is true, but SERVER_SET_PATH is not set")
        elif file is not None and switch == "true":
            yield self._given("server_set_file", file)

    def _unknown(self) -> None:
        known = known_names()
        for name, entry in self._all.items():
            if name in REPLACED:
                if entry.value.strip():
                    self._warn(entry, f"without effect: {REPLACED[name]}")
            elif name not in known:
                self._problem(entry, f"unknown key{did_you_mean(name, known)}")

    def _given(self, path: str, entry: Property | None, raw: object = None) -> Given:
        place = f"{self._path}:{entry.line}: {entry.key}" if entry else str(self._path)
        value = entry.value.strip() if entry and raw is None else raw
        return Given(path, value, Origin("file", place), self._path.parent)

    def _problem(self, entry: Property, text: str) -> None:
        self._problems.append(f"{self._path}:{entry.line}: {entry.key}: {text}")

    def _warn(self, entry: Property, text: str) -> None:
        self._warnings.append(f"{self._path}:{entry.line}: {entry.key}: {text}")
