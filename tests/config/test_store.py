"""Which store is meant, and that no complaint about a URL shows a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.mysql_url import MysqlUrl
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_file import find_shards
from pinlater.server.config.show import shown_settings
from pinlater.server.config.store import StoreLocation, parse_store, without_password
from pinlater.server.storage.mysql.settings import Endpoint, MysqlSettings

SECRET = "s3cret-Word"


def url(text: str) -> MysqlUrl:
    found = parse_store(text).url
    assert isinstance(found, MysqlUrl)
    return found


def complaint_about(text: str) -> str | None:
    try:
        parse_store(text)
    except ValueError as error:
        return str(error)
    return None


def the_shard(text: str, mysql: MysqlSettings | None = None) -> Endpoint:
    (place,) = find_shards(Settings(store=parse_store(text), mysql=mysql or MysqlSettings()))
    assert (place.name, place.takes_enqueues) == ("1", True)
    assert isinstance(place.endpoint, Endpoint)
    return place.endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mysql://u:p@db:3307/jobs", MysqlUrl("db", 3307, "u", "p", "jobs")),
        ("mysql://db", MysqlUrl("db")),
        ("mysql://u@db/", MysqlUrl("db", 3306, "u")),
        ("mysql://u:@db", MysqlUrl("db", 3306, "u", "")),
        ("mysql://u:a%2Fb%40c%23%25@10.0.0.1/x", MysqlUrl("10.0.0.1", 3306, "u", "a/b@c#%", "x")),
        ("mysql://u:a@b@db/x", MysqlUrl("db", 3306, "u", "a@b", "x")),
        ("mysql://[::1]:3306/x", MysqlUrl("::1", 3306, None, None, "x")),
        ("mysql://u@/x?socket=/run/mysqld/mysqld.sock", MysqlUrl("", 3306, "u", None, "x", "/run/mysqld/mysqld.sock")),
        ("mysql://db/x?tls=true", MysqlUrl("db", 3306, None, None, "x", None, True)),
    ],
)
def test_a_url_is_taken_apart(text: str, expected: MysqlUrl) -> None:
    assert url(text) == expected


def test_what_a_url_leaves_out_comes_from_the_settings() -> None:
    given_elsewhere = MysqlSettings(user="jobs", password="p", database_prefix="plater")
    assert the_shard("mysql://db", given_elsewhere) == Endpoint("db", 3306, "jobs", "p", "plater_1")
    assert the_shard("mysql://u:q@db/x", given_elsewhere) == Endpoint("db", 3306, "u", "q", "x")
    assert the_shard("mysql://db") == Endpoint("db", 3306, "pinlater", "", "pinlater_1")
    assert str(the_shard("mysql://[::1]:3307/x")) == "[::1]:3307/x"


def test_the_password_of_a_file_goes_before_that_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n# not this\n")
    assert the_shard("mysql://db", MysqlSettings(password="p", password_file=file)).password == "from the file"
    assert the_shard("mysql://u:q@db", MysqlSettings(password="p", password_file=file)).password == "q"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mysql://", "names no host"),
        ("mysql://u@/x", "names no host"),
        (f"mysql://u:{SECRET}@/x", "names no host"),
        (f"mysql://u:{SECRET}@db:0/x", "port 0"),
        (f"mysql://u:{SECRET}@db:many/x", "is no URL with a host and a port"),
        (f"mysql://u:{SECRET}@db:70000/x", "is no URL with a host and a port"),
        (f"mysql://u:{SECRET}/word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}?word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}#word@db/x", "percent-encoded"),
        (f"mysql://u:{SECRET}%word@db/x", "percent-encoded"),
        (f"mysql://u:12/{SECRET}@db/x", "has a database's name with other signs"),
        (f"mysql://u:12?{SECRET}@db/x", "has an option that there is not"),
        (f"mysql://u:12#{SECRET}@db/x", "has a # in it"),
        (f"mysql://u:{SECRET}%ff@db/x", "not UTF-8"),
        (f"mysql://u:{SECRET}@db/x/y", "has a database's name with other signs"),
        (f"mysql://u:{SECRET}@db/{'x' * 65}", "over 64"),
        (f"mysql://u:{SECRET}@db/x?sockt=/y", "(did you mean socket?)"),
        (f"mysql://u@db/x?password={SECRET}", "has an option that there is not"),
        (f"mysql://u:{SECRET}@db/x?socket=", "names no socket"),
        (f"mysql://u:{SECRET}@db/x?tls=maybe", "neither true nor false"),
        (f"mysql://u:{SECRET}@db/x?tls=true&tls=false", "has the option tls twice"),
        (f"mysql:/u:{SECRET}@db/x", "a URL begins with mysql://"),
        (f"mysql:u:{SECRET}@db/x", "a URL begins with mysql://"),
        (f"mariadb://u:{SECRET}@db/x", "did you mean mysql://…?"),
        (f"postgres://u:{SECRET}@db/x", "is not a store"),
        (f"mysq://u:{SECRET}@db/x", "did you mean mysql?"),
        (f"valkey://:{SECRET}@db", "did you mean redis://…?"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_its_password(text: str, complaint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"store": text})
    (problem,) = caught.value.problems
    assert complaint in problem
    assert SECRET not in str(caught.value)
    assert "word@" not in problem


@given(password=st.text(min_size=8, max_size=20).filter(lambda text: text.strip() == text and "\0" not in text))
def test_no_password_is_ever_shown(password: str) -> None:
    """Neither of a URL that holds, nor of one that doesn't, nor of a complaint."""
    try:
        quoted = quote(password, safe="")
    except UnicodeEncodeError:
        return
    text = f"mysql://u:{quoted}@db.example/jobs"
    location = parse_store(text)
    assert location.url is not None
    assert location.url.password == password
    for shown in (str(location), repr(location), str(location.url), repr(location.url), without_password(text)):
        assert quoted not in shown
    assert str(location) == "mysql://u@db.example:3306/jobs"
    raw = f"mysql://u:{password}@db.example/jobs"
    assert password not in without_password(raw)
    complaint = complaint_about(raw)
    assert complaint is None or password not in complaint


def test_settings_never_show_the_password() -> None:
    """As text, as a value and as a list of all settings."""
    loaded = load(flags={"store": f"mysql://u:{SECRET}@db/x", "mysql.password": SECRET})
    shown = str([*shown_settings(loaded), loaded.settings, find_shards(loaded.settings)])
    assert SECRET not in shown
    assert "mysql://u@db:3306/x" in shown


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


def test_a_shard_file_is_found_beside_the_settings(tmp_path: Path) -> None:
    assert parse_store("mysql:shards.json", tmp_path) == StoreLocation("mysql", shard_file=tmp_path / "shards.json")
    assert str(parse_store("mysql:shards.json")) == "mysql:shards.json"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"mysql.database_prefix": "a b"}, "database_prefix must be 1 to 40 letters"),
        ({"mysql.database_prefix": "x" * 41}, "database_prefix must be 1 to 40 letters"),
        ({"mysql.tls_key": "key.pem"}, "tls_key needs tls_cert"),
        ({"mysql.databases_per_server": "0"}, "out of range"),
        ({"mysql.tls": "true", "mysql.tls_ca": "nowhere.pem"}, "nowhere.pem: No such file or directory"),
        ({"mysql.password_file": "nowhere"}, "nowhere can't be read"),
    ],
)
def test_what_is_wrong_with_the_table_mysql_is_said_before_anything_starts(
    flags: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load(flags={"store": "mysql://db/x", **flags})


def test_a_tls_file_that_holds_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(SettingsError, match=r"ca\.pem: "):
        load(flags={"store": "mysql://db/x?tls=true", "mysql.tls_ca": str(tmp_path / "ca.pem")})


def test_tls_files_that_nobody_uses_give_a_warning(tmp_path: Path) -> None:
    loaded = load(flags={"store": "mysql://db/x", "mysql.tls_ca": str(tmp_path / "ca.pem")})
    assert any("mysql.tls is false" in warning for warning in loaded.warnings)


def test_a_password_file_that_all_may_read_gives_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("p")
    file.chmod(0o644)
    loaded = load(flags={"store": "mysql://db/x", "mysql.password_file": str(file)})
    assert any(warning.startswith(f"{file} can be read by every user") for warning in loaded.warnings)
    file.chmod(0o600)
    assert load(flags={"store": "mysql://db/x", "mysql.password_file": str(file)}).warnings == ()


def test_without_the_driver_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.server.config.checks.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install .*\[mysql\]'"):
        load(flags={"store": "mysql://db/x"})


@pytest.mark.parametrize(("milliseconds", "seconds"), [(1, 1), (1_000, 1), (1_001, 2), (3_000, 3)])
def test_locks_are_waited_for_in_whole_seconds(milliseconds: int, seconds: int) -> None:
    assert MysqlSettings(lock_wait_ms=milliseconds).lock_wait_s == seconds
