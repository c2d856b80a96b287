"""The original's settings file, taken as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.original import REPLACED, SAME, STORE_KEYS, known_names
from pinlater.server.config.schema import keys
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_file import find_shards
from pinlater.server.config.store import StoreLocation

CONTRACT = (
    "ADMIN_PASSWORD_HASH",
    "PINLATER_BACKEND",
    "THRIFT_PORT",
    "OSTRICH_PORT",
    "MAX_CONCURRENT_REQUESTS",
    "SERVER_CONN_MAX_IDLE_TIME_MINUTES",
    "NUM_PRIORITY_LEVELS",
    "QUEUE_CONFIG_FILE_PATH",
    "SERVER_SET_ENABLED",
    "SERVER_SET_PATH",
    "BACKEND_MONITOR_JOB_CLAIMED_TIMEOUT_SECONDS",
    "BACKEND_MONITOR_JOB_FAILED_GC_TTL_HOURS",
    "BACKEND_MONITOR_JOB_SUCCEEDED_GC_TTL_HOURS",
    "MONITOR_LOG_INTERVAL",
    "BACKEND_MONITOR_THREAD_DELAY_SECONDS",
    "BACKEND_MONITOR_UPDATE_MAX_SIZE",
    "BACKEND_CONNECTIONS_PER_SHARD",
    "BACKEND_CONNECTION_MAX_WAIT_MILLIS",
    "BACKEND_SOCKET_TIMEOUT_SECONDS",
    "BACKEND_NUM_AUTO_RETRIES",
    "BACKEND_QUERY_PARALLELISM",
    "BACKEND_DEQUEUE_CONCURRENCY_PER_QUEUE_PER_SHARD",
    "MONITOR_CONNECTIONS_PER_SHARD",
    "MONITOR_SOCKET_TIMEOUT_SECONDS",
    "MYSQL_COUNT_LIMIT",
    "MYSQL_NUM_DB_PER_QUEUE",
    "SHARD_ALLOWED_HOSTNAME_PREFIX",
    "REDIS_HEALTH_CHECK_CONSECUTIVE_FAILURES",
    "REDIS_HEALTH_CHECK_CONSECUTIVE_SUCCESSES",
    "REDIS_HEALTH_CHECK_PING_INTERVAL_SECONDS",
    "SHARDS_FILE",
)

OLD_SET_UP = """\
# An operator's file
ADMIN_PASSWORD_HASH=
PINLATER_BACKEND=sqlite
SQLITE_PATH=data/jobs.db
THRIFT_PORT=9011
OSTRICH_PORT=9998
MAX_CONCURRENT_REQUESTS=4000
SERVER_CONN_MAX_IDLE_TIME_MINUTES=7
NUM_PRIORITY_LEVELS=5
QUEUE_CONFIG_FILE_PATH=limits.json
SERVER_SET_ENABLED=true
SERVER_SET_PATH=servers
BACKEND_MONITOR_JOB_CLAIMED_TIMEOUT_SECONDS=180
BACKEND_MONITOR_JOB_FAILED_GC_TTL_HOURS=2
BACKEND_MONITOR_JOB_SUCCEEDED_GC_TTL_HOURS=1
BACKEND_QUERY_PARALLELISM=5
MYSQL_COUNT_LIMIT=1000
"""


def properties(folder: Path, text: str) -> Path:
    path = folder / "pinlater.properties"
    path.write_text(text)
    return path


def problems(path: Path) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(path)
    return tuple(problem.removeprefix(str(path)) for problem in caught.value.problems)


def test_an_old_set_up_is_taken_over_in_our_units(tmp_path: Path) -> None:
    (tmp_path / "limits.json").write_text('{"queues": []}')
    (tmp_path / "servers").write_text("a:1\n")
    loaded = load(properties(tmp_path, OLD_SET_UP))
    settings = loaded.settings
    assert settings.store == StoreLocation("sqlite", tmp_path / "data/jobs.db")
    assert (settings.thrift.port, settings.http.port) == (9011, 9998)
    assert settings.thrift.max_concurrent_requests == 4000
    assert settings.thrift.idle_timeout_s == 420
    assert settings.jobs.priority_levels == 5
    assert settings.jobs.claim_timeout_ms == 180_000
    assert (settings.jobs.failed_ttl_ms, settings.jobs.succeeded_ttl_ms) == (7_200_000, 3_600_000)
    assert settings.jobs.regex_rows_max == 1000
    assert settings.queue_limits_file == tmp_path / "limits.json"
    assert settings.server_set_file == tmp_path / "servers"
    assert settings.admin_password_hash is None
    assert str(loaded.origins["jobs.claim_timeout_ms"]).endswith(":13: BACKEND_MONITOR_JOB_CLAIMED_TIMEOUT_SECONDS")


def test_a_key_that_means_nothing_here_is_accepted_with_what_takes_its_place(tmp_path: Path) -> None:
    lines = [f"{name}=1" for name in REPLACED]
    loaded = load(properties(tmp_path, "\n".join(["PINLATER_BACKEND=memory", *lines])))
    assert len(loaded.warnings) == len(REPLACED) + 1
    assert all("without effect" in warning for warning in loaded.warnings[:-1])


def test_every_key_of_the_contract_is_known() -> None:
    assert set(CONTRACT) <= known_names()


def test_every_setting_that_the_translation_names_exists() -> None:
    tables = {key.table for key in keys().values()} - {""}
    named = [word for text in REPLACED.values() for word in re.findall(r"\b([a-z]+\.[a-z_]+)\b", text)]
    assert {path for same in SAME.values() for path in (same.path, same.also) if path} <= set(keys())
    assert {word for word in named if word.partition(".")[0] in tables} <= set(keys())


def test_an_empty_value_means_not_set(tmp_path: Path) -> None:
    text = "PINLATER_BACKEND=memory\n" + "\n".join(f"{name}=" for name in CONTRACT if name not in STORE_KEYS)
    assert load(properties(tmp_path, text)).settings == load(flags={"store": "memory:"}).settings


def test_our_settings_are_possible_in_the_same_spelling(tmp_path: Path) -> None:
    text = "PINLATER_BACKEND=memory\nHOST=0.0.0.0\nJOBS_MAX_BODY_BYTES=2 MiB\nHTTP_MAX_CONNECTIONS=9\n"
    settings = load(properties(tmp_path, text)).settings
    assert (settings.host, settings.jobs.max_body_bytes, settings.http.max_connections) == ("0.0.0.0", 2 * 2**20, 9)


def test_without_a_backend_the_message_says_what_to_set(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "THRIFT_PORT=9010\n"))
    assert "PINLATER_BACKEND is not set, which means mysql, and SHARDS_FILE, the MySQL shard file, is not set" in found
    assert "PINLATER_BACKEND=sqlite and SQLITE_PATH=<file>" in found


def test_redis_without_a_shard_file_is_refused_with_what_to_set(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "\nPINLATER_BACKEND=redis\n"))
    assert found.startswith(":2: PINLATER_BACKEND: SHARDS_FILE, the Redis shard file, is not set")


@pytest.mark.parametrize("backend", ["redis", "Redis"])
def test_redis_takes_its_shards_from_the_shard_file(tmp_path: Path, backend: str) -> None:
    """Time limits and retries of the original's file are Redis' as well as MySQL's."""
    (tmp_path / "redis.json").write_text(
        '{"shards": [{"name": "2", "shardConfig": {"master": {"host": "a", "port": 1}}}]}'
    )
    text = f"PINLATER_BACKEND={backend}\nSHARDS_FILE=redis.json\nBACKEND_SOCKET_TIMEOUT_SECONDS=7\nBACKEND_NUM_AUTO_RETRIES=0\n"
    loaded = load(properties(tmp_path, text + "NUM_PRIORITY_LEVELS=5\n"))
    settings = loaded.settings
    assert settings.store == StoreLocation("redis", shard_file=tmp_path / "redis.json")
    assert (settings.redis.command_timeout_ms, settings.redis.retries, settings.redis.priority_levels) == (7_000, 0, 5)
    assert [place.name for place in find_shards(settings)] == ["2"]
    assert loaded.warnings == ()


@pytest.mark.parametrize("text", ["", "PINLATER_BACKEND=mysql\n", "PINLATER_BACKEND=MySQL\n"])
def test_mysql_takes_its_shards_from_the_shard_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "shards.json").write_text('{"db002": {"master": {"host": "a", "port": 1}}, "x": 1}')
    (tmp_path / "shards.json").chmod(0o600)
    old = "SHARDS_FILE=shards.json\nSHARD_ALLOWED_HOSTNAME_PREFIX=db\nMYSQL_NUM_DB_PER_QUEUE=4\nBACKEND_SOCKET_TIMEOUT_SECONDS=7\n"
    loaded = load(properties(tmp_path, text + old + "BACKEND_NUM_AUTO_RETRIES=0\nNUM_PRIORITY_LEVELS=5\n"))
    settings = loaded.settings
    assert settings.store == StoreLocation("mysql", shard_file=tmp_path / "shards.json")
    assert (settings.mysql.databases_per_server, settings.mysql.statement_timeout_ms, settings.mysql.retries) == (
        4,
        7_000,
        0,
    )
    assert settings.mysql.priority_levels == 5
    assert [place.name for place in find_shards(settings)] == ["2", "2d1", "2d2", "2d3"]
    assert loaded.warnings == ()


@pytest.mark.parametrize(("name", "backend"), [("SHARDS_FILE", "sqlite"), ("SQLITE_PATH", "memory")])
def test_another_stores_path_is_without_effect(tmp_path: Path, name: str, backend: str) -> None:
    loaded = load(properties(tmp_path, f"PINLATER_BACKEND={backend}\n{name}=x\n"))
    assert f"{name}: without effect unless PINLATER_BACKEND is" in loaded.warnings[0]


def test_a_misspelt_backend_is_refused(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "PINLATER_BACKEND=sqlit\n"))
    assert "did you mean sqlite?" in found


@pytest.mark.parametrize("text", ["", "PINLATER_BACKEND=mysql\n", "PINLATER_BACKEND=redis\n"])
def test_a_flag_for_the_store_lets_the_old_file_start(tmp_path: Path, text: str) -> None:
    loaded = load(properties(tmp_path, text + "THRIFT_PORT=9011\n"), flags={"store": "sqlite:x.db"})
    assert loaded.settings.store == StoreLocation("sqlite", Path("x.db"))
    assert loaded.settings.thrift.port == 9011


def test_sqlite_without_a_path_is_a_file_beside_the_settings(tmp_path: Path) -> None:
    settings = load(properties(tmp_path, "PINLATER_BACKEND=sqlite\n")).settings
    assert settings.store == StoreLocation("sqlite", tmp_path / "pinlater.db")


def test_an_unknown_key_is_refused_with_the_near_one(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "PINLATER_BACKEND=memory\nTHRIFT_PROT=1\n"))
    assert found == ":2: THRIFT_PROT: unknown key (did you mean THRIFT_PORT?)"


def test_a_value_in_the_originals_units_that_is_no_number_is_refused(tmp_path: Path) -> None:
    text = "PINLATER_BACKEND=memory\nSERVER_CONN_MAX_IDLE_TIME_MINUTES=soon\n"
    assert problems(properties(tmp_path, text)) == (
        ":2: SERVER_CONN_MAX_IDLE_TIME_MINUTES: 'soon' is not a number of minutes",
    )


def test_out_of_range_is_said_with_the_originals_key(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "PINLATER_BACKEND=memory\nTHRIFT_PORT=70000\n"))
    assert found.startswith(":2: THRIFT_PORT: '70000' is out of range")


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("SERVER_SET_ENABLED=false\nSERVER_SET_PATH=servers\n", None),
        ("SERVER_SET_ENABLED=true\nSERVER_SET_PATH=servers\n", "servers"),
        ("SERVER_SET_PATH=servers\n", "servers"),
        ("SERVER_SET_ENABLED=false\n", None),
    ],
)
def test_the_server_set_counts_unless_it_is_switched_off(tmp_path: Path, text: str, file: str | None) -> None:
    (tmp_path / "servers").write_text("a:1\n")
    settings = load(properties(tmp_path, "PINLATER_BACKEND=memory\n" + text)).settings
    assert settings.server_set_file == (tmp_path / file if file else None)


def test_a_server_set_that_is_on_without_a_path_is_refused(tmp_path: Path) -> None:
    (found,) = problems(properties(tmp_path, "PINLATER_BACKEND=memory\nSERVER_SET_ENABLED=true\n"))
    assert "SERVER_SET_PATH is not set" in found


def test_a_broken_escape_names_its_line(tmp_path: Path) -> None:
    assert problems(properties(tmp_path, "PINLATER_BACKEND=memory\nHOST=\\uXY\n"))[0].startswith(":2: ")


def test_latin_1_is_read_where_the_file_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "pinlater.properties"
    path.write_bytes(b"# caf\xe9\nPINLATER_BACKEND=sqlite\nSQLITE_PATH=caf\xe9.db\n")
    assert load(path).settings.store.path == tmp_path / "café.db"


def test_defaults_fill_what_the_file_leaves_out(tmp_path: Path) -> None:
    settings = load(properties(tmp_path, "PINLATER_BACKEND=memory\n")).settings
    assert settings.jobs == Settings().jobs
