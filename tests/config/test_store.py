"""Which store is meant, and that no complaint about a URL shows a password."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import SentinelAddress, ShardAddress
from pinlater.server.config.shard_file import ShardSource, find_shards
from pinlater.server.config.show import shown_settings
from pinlater.server.config.store import StoreLocation, parse_store, without_password
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

SECRET = "s3cret-Word"
SENTINELS = (SentinelAddress("s1", 26379), SentinelAddress("::1", 7))
# The shortest URL of each kind.
URLS = {"mysql": "mysql://db", "redis": "redis://r"}
EACH_KIND = pytest.mark.parametrize("kind", list(URLS))


def mysql(host: str, port: int = 3306, **parts: Any) -> ShardAddress:
    return ShardAddress("mysql", host, port, **parts)


def redis(host: str, port: int = 6379, *, scheme: str = "redis", **parts: Any) -> ShardAddress:
    return ShardAddress(scheme, host, port, **{"database": "0", **parts})


def complaint_about(text: str) -> str | None:
    try:
        parse_store(text)
    except ValueError as error:
        return str(error)
    return None


def the_shard(text: str, **tables: MysqlSettings | RedisSettings) -> MysqlEndpoint | RedisEndpoint:
    """Where the only shard of the URL is, with these tables of the settings."""
    (place,) = find_shards(Settings(store=parse_store(text), **tables))  # type: ignore[arg-type]
    assert (place.name, place.takes_enqueues) == ("1", True)
    assert isinstance(place.endpoint, MysqlEndpoint | RedisEndpoint)
    return place.endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql://u:p@db:3307/jobs", mysql("db", 3307, user="u", password="p", database="jobs")),
        ("mysql://db", mysql("db")),
        ("mysql://u@db/", mysql("db", user="u")),
        ("mysql://u:@db", mysql("db", user="u", password="")),
        ("mysql://u:a%2Fb%40c%23%25@10.0.0.1/x", mysql("10.0.0.1", user="u", password="a/b@c#%", database="x")),
        ("mysql://u:a@b@db/x", mysql("db", user="u", password="a@b", database="x")),
        ("mysql://[::1]:3306/x", mysql("::1", database="x")),
        ("mysql://u@/x?socket=/run/mysqld.sock", mysql("", user="u", database="x", socket="/run/mysqld.sock")),
        ("mysql://db/x?tls=true", mysql("db", database="x", tls=True)),
        ("redis://u:p@r:6380/3", redis("r", 6380, user="u", password="p", database="3")),
        ("redis://r", redis("r")),
        ("redis://:p@r/", redis("r", password="p")),
        ("rediss://r/0", redis("r", scheme="rediss", tls=True)),
        ("redis://u:a%2Fb%40c%23%25@10.0.0.1", redis("10.0.0.1", user="u", password="a/b@c#%")),
        ("redis://[::1]:6379/1", redis("::1", database="1")),
        ("redis://u@/2?socket=/run/redis.sock", redis("", user="u", database="2", socket="/run/redis.sock")),
        (
            "rediss://u@/1?sentinel=s1&sentinel=[::1]:7&master=jobs",
            redis("", scheme="rediss", user="u", database="1", tls=True, sentinels=SENTINELS, master="jobs"),
        ),
        ("redis:///?master=jobs&sentinel=s1:26379,[::1]:7", redis("", sentinels=SENTINELS, master="jobs")),
    ],
)
def test_a_url_is_taken_apart(text: str, expected: ShardAddress) -> None:
    found = parse_store(text)
    assert (found.url, found.kind) == (expected, expected.scheme.replace("ss", "s"))


def test_missing_parts_of_a_mysql_url_come_from_the_settings() -> None:
    given_elsewhere = MysqlSettings(user="jobs", password="p", database_prefix="plater")
    assert the_shard("mysql://db", mysql=given_elsewhere) == MysqlEndpoint("db", 3306, "jobs", "p", "plater_1")
    assert the_shard("mysql://u:q@db/x", mysql=given_elsewhere) == MysqlEndpoint("db", 3306, "u", "q", "x")
    assert the_shard("mysql://db") == MysqlEndpoint("db", 3306, "pinlater", "", "pinlater_1")
    assert str(the_shard("mysql://[::1]:3307/x")) == "[::1]:3307/x"


def test_missing_parts_of_a_redis_url_come_from_the_settings() -> None:
    given_elsewhere = RedisSettings(user="jobs", password="p", sentinels=("s1", "[::1]:7"))
    assert the_shard("redis://r", redis=given_elsewhere) == RedisEndpoint("r", 6379, "jobs", "p")
    assert the_shard("redis://u:q@r/2", redis=given_elsewhere) == RedisEndpoint("r", 6379, "u", "q", 2)
    assert the_shard("redis://r") == RedisEndpoint("r", 6379)
    assert the_shard("rediss://r") == RedisEndpoint("r", 6379, tls=True)
    of_sentinels = RedisEndpoint("", 6379, "jobs", "p", sentinels=SENTINELS, master="m")
    assert the_shard("redis://?master=m", redis=given_elsewhere) == of_sentinels
    found = the_shard("redis://?master=m&sentinel=other", redis=given_elsewhere)
    assert found == replace(of_sentinels, sentinels=(SentinelAddress("other", 26379),))


@EACH_KIND
def test_the_password_of_a_file_goes_before_that_of_the_settings(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n# not this\n")
    flags = {f"{kind}.password": "p", f"{kind}.password_file": str(file)}
    for text, password in ((URLS[kind], "from the file"), (URLS[kind].replace("//", "//u:q@"), "q")):
        [place] = find_shards(load(flags={"store": text, **flags}).settings)
        assert place.endpoint.password == password


@EACH_KIND
def test_the_shard_of_a_url_follows_the_password_file(kind: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("old")
    source = ShardSource(load(flags={"store": URLS[kind], f"{kind}.password_file": str(password)}).settings)
    password.write_text("new")
    assert source.refresh()
    assert source.places[0].endpoint.password == "new"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mysql://", "names no host"),
        ("mysql://u@/x", "names no host"),
        (f"mysql://u:{SECRET}@/x", "names no host"),
        (f"mysql://u:{SECRET}@db:0/x", "port 0"),
        (f"mysql://u:{SECRET}@db:many/x", "is not a URL with a host and a port"),
        (f"mysql://u:{SECRET}@db:70000/x", "is not a URL with a host and a port"),
        (f"mysql://u:{SECRET}/word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}?word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}#word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}%word@db/x", "percent-encoded"),
        (f"mysql://u:12/{SECRET}@db/x", "has a database name that is longer than 64"),
        (f"mysql://u:12?{SECRET}@db/x", "has an unknown option"),
        (f"mysql://u:12#{SECRET}@db/x", "has a # in it"),
        (f"mysql://u:{SECRET}%ff@db/x", "not UTF-8"),
        (f"mysql://u:{SECRET}@db/x/y", "has a database name that is longer than 64"),
        (f"mysql://u:{SECRET}@db/{'x' * 65}", "longer than 64"),
        (f"mysql://u:{SECRET}@db/x?sockt=/y", "(did you mean socket?)"),
        (f"mysql://u@db/x?password={SECRET}", "has an unknown option"),
        (f"mysql://u:{SECRET}@db/x?socket=", "names no socket"),
        (f"mysql://u:{SECRET}@db/x?tls=maybe", "neither true nor false"),
        (f"mysql://u:{SECRET}@db/x?tls=true&tls=false", "has the option tls twice"),
        (f"mysql:/u:{SECRET}@db/x", "a URL begins with mysql://"),
        (f"mysql:u:{SECRET}@db/x", "a URL begins with mysql://"),
        (f"mariadb://u:{SECRET}@db/x", "did you mean mysql://…?"),
        (f"postgres://u:{SECRET}@db/x", "is not a store"),
        (f"mysq://u:{SECRET}@db/x", "did you mean mysql?"),
        (f"valkey://:{SECRET}@db", "did you mean redis://…?"),
        ("redis://", "names no host"),
        (f"redis://:{SECRET}@", "names no host"),
        (f"redis://u:{SECRET}@r:0", "port 0"),
        (f"redis://u:{SECRET}@r:many", "is not a URL with a host and a port"),
        (f"redis://u:{SECRET}/word@r", "percent-encoded"),
        (f"redis://u:{SECRET}#word@r", "percent-encoded"),
        (f"redis://u:{SECRET}%word@r", "percent-encoded"),
        (f"redis://u:12/{SECRET}@r", "has a database that is not a number"),
        (f"redis://u:{SECRET}@r/jobs", "has a database that is not a number"),
        (f"redis://u:{SECRET}@r/-1", "has a database that is not a number"),
        (f"redis://u:{SECRET}@r/1?sockt=/y", "(did you mean socket?)"),
        (f"redis://u@r?password={SECRET}", "has an unknown option"),
        (f"redis://u:{SECRET}@r?socket=", "names no socket"),
        (f"redis://u:{SECRET}@?master=", "names no master"),
        (f"redis://u:{SECRET}@?sentinel=s", "not which master"),
        (f"redis://u:{SECRET}@?sentinel=s:0&master=m", "not HOST:PORT"),
        (f"redis://u:{SECRET}@?sentinel=s,&master=m", "not HOST:PORT"),
        (f"redis://u:{SECRET}@?master=m&master=n", "has the option master twice"),
        (f"redis://u:{SECRET}@r?sentinel=s&master=m", "names a host and a master"),
        (f"redis://u:{SECRET}@?socket=/s&master=m", "names a socket and a master"),
        (f"redis://u:{SECRET}@?master=m", "names a master, and neither it nor redis.sentinels name Sentinels"),
        (f"redis:/u:{SECRET}@r", "a URL begins with redis://"),
        (f"redsi://u:{SECRET}@r", "did you mean redis?"),
    ],
)
def test_an_error_in_a_url_is_reported_without_its_password(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"store": text})
    (problem,) = caught.value.problems
    assert complaint in problem
    assert SECRET not in str(caught.value)
    assert "word@" not in problem


@pytest.mark.parametrize(
    ("begin", "end"),
    [("mysql://u", "@db.example:3306/jobs"), ("redis://u", "@r.example:6379/2"), ("rediss://u", "@r:6379/0")],
)
@given(password=st.text(min_size=8, max_size=20).filter(lambda text: text.strip() == text and "\0" not in text))
def test_no_password_is_ever_shown(begin: str, end: str, password: str) -> None:
    try:
        quoted = quote(password, safe="")
    except UnicodeEncodeError:
        return
    text = f"{begin}:{quoted}{end}"
    location = parse_store(text)
    assert location.url is not None
    assert location.url.password == password
    for shown in (str(location), repr(location), str(location.url), repr(location.url), without_password(text)):
        assert quoted not in shown
    assert str(location) == f"{begin}{end}"
    raw = f"{begin}:{password}{end}"
    assert password not in without_password(raw)
    complaint = complaint_about(raw)
    assert complaint is None or password not in complaint


@pytest.mark.parametrize(
    "text",
    [
        "mysql://u@db:3306/x",
        "redis://u@r:6379/0",
        "rediss://[::1]:1/3",
        "redis://u@/0?socket=/s",
        "redis:///1?sentinel=a:26379&sentinel=[::1]:2&master=m",
    ],
)
def test_a_url_is_shown_as_it_can_be_written(text: str) -> None:
    found = parse_store(text)
    assert str(found.url) == text
    assert parse_store(str(found.url)) == found


@pytest.mark.parametrize(
    ("store", "secrets", "shown"),
    [
        (f"mysql://u:{SECRET}@db/x", ("mysql.password",), "mysql://u@db:3306/x"),
        (f"redis://u:{SECRET}@r", ("redis.password", "redis.sentinel_password"), "redis://u@r:6379/0"),
    ],
)
def test_settings_never_show_a_password(store: str, secrets: tuple[str, ...], shown: str) -> None:
    loaded = load(flags={"store": store, **dict.fromkeys(secrets, SECRET)})
    everything = str([*shown_settings(loaded), loaded.settings, find_shards(loaded.settings)])
    assert SECRET not in everything
    assert shown in everything


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql://u:p@db/x", "mysql://…@db/x"),
        ("mysql://u:p@db/x?y=z", "mysql://…@db/x"),
        ("mysql://u:p", "mysql://…"),
        ("mysql:u:p@db", "mysql:…@db"),
        ("mysql:shards.json", "mysql:shards.json"),
        ("sqlite:a@b.db", "sqlite:a@b.db"),
        ("jobs.db", "jobs.db"),
    ],
)
def test_complaints_show_no_more_than_the_place(text: str, shown: str) -> None:
    assert without_password(text) == shown


@EACH_KIND
def test_a_shard_file_is_found_in_the_folder_of_the_settings(kind: str, tmp_path: Path) -> None:
    location = StoreLocation(kind, shard_file=tmp_path / "shards.json")
    assert parse_store(f"{kind}:shards.json", tmp_path) == location
    assert str(parse_store(f"{kind}:shards.json")) == f"{kind}:shards.json"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"mysql.database_prefix": "a b"}, "database_prefix must be 1 to 40 letters"),
        ({"mysql.database_prefix": "x" * 41}, "database_prefix must be 1 to 40 letters"),
        ({"mysql.tls_key": "key.pem"}, "tls_key needs tls_cert"),
        ({"mysql.databases_per_server": "0"}, "out of range"),
        ({"mysql.tls": "true", "mysql.tls_ca": "nowhere.pem"}, "nowhere.pem: No such file or directory"),
        ({"mysql.password_file": "nowhere"}, "nowhere can't be read"),
        ({"redis.key_prefix": "a{b"}, "key_prefix must be at most 40 letters"),
        ({"redis.tls_key": "key.pem"}, "tls_key needs tls_cert"),
        ({"redis.tls": "true", "redis.tls_ca": "nowhere.pem"}, "nowhere.pem: No such file or directory"),
        ({"redis.password_file": "nowhere"}, "nowhere can't be read"),
        ({"redis.sentinels": "a b"}, "not HOST:PORT"),
        ({"redis.memory_used_max_percent": "101"}, "out of range"),
    ],
)
def test_an_error_in_the_settings_of_a_store_is_reported_before_anything_starts(
    flags: dict[str, str], complaint: str
) -> None:
    kind = next(iter(flags)).partition(".")[0]
    with pytest.raises(SettingsError, match=complaint):
        load(flags={"store": URLS[kind], **flags})


def test_a_tls_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsError, match=r"ca\.pem: "):
        load(flags={"store": "mysql://db/x?tls=true", "mysql.tls_ca": str(tmp_path / "ca.pem")})


@EACH_KIND
def test_tls_files_that_are_not_used_give_a_warning(kind: str, tmp_path: Path) -> None:
    loaded = load(flags={"store": URLS[kind], f"{kind}.tls_ca": str(tmp_path / "ca.pem")})
    assert any(f"{kind}.tls is false" in warning for warning in loaded.warnings)


@EACH_KIND
def test_a_password_file_that_is_missing_is_said_with_its_own_line(kind: str, tmp_path: Path) -> None:
    """Not with the line of the store, where nothing is to be repaired."""
    path = tmp_path / "pinlater.toml"
    path.write_text(f'store = "{URLS[kind]}"\n\n[{kind}]\npassword_file = "nowhere"\n')
    with pytest.raises(SettingsError) as caught:
        load(path)
    assert caught.value.problems == (
        f"{path}:4: {kind}.password_file: {tmp_path}/nowhere can't be read: No such file or directory",
    )


def test_a_password_file_that_all_may_read_gives_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p")
    file.chmod(0o644)
    loaded = load(flags={"store": "mysql://db/x", "mysql.password_file": str(file)})
    assert any(warning.startswith(f"{file} can be read by every user") for warning in loaded.warnings)
    file.chmod(0o600)
    assert load(flags={"store": "mysql://db/x", "mysql.password_file": str(file)}).warnings == ()


@EACH_KIND
def test_without_the_driver_the_message_says_what_to_install(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.server.config.checks.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=rf"pip install .*\[{kind}\]'"):
        load(flags={"store": URLS[kind]})


def test_several_processes_may_share_redis() -> None:
    assert load(flags={"store": "redis://r", "processes": 4}).settings.processes == 4


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, 1), (1_000, 1), (1_001, 2), (3_000, 3)])
def test_locks_are_waited_for_in_whole_seconds(milliseconds: int, seconds: int) -> None:
    assert MysqlSettings(lock_wait_ms=milliseconds).lock_wait_s == seconds
