"""Which Redis is meant, and that no complaint about a URL shows a password."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.addresses import Address
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.load import load
from pinlater.server.config.redis_url import RedisUrl
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_file import ShardSource, find_shards
from pinlater.server.config.show import shown_settings
from pinlater.server.config.store import StoreLocation, parse_store, without_password
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

SECRET = "s3cret-Word"
SENTINELS = (Address("s1", 26379), Address("::1", 7))


def url(text: str) -> RedisUrl:
    found = parse_store(text)
    assert found.kind == "redis"
    assert isinstance(found.url, RedisUrl)
    return found.url


def complaint_about(text: str) -> str | None:
    try:
        parse_store(text)
    except ValueError as error:
        return str(error)
    return None


def the_shard(text: str, redis: RedisSettings | None = None) -> RedisEndpoint:
    (place,) = find_shards(Settings(store=parse_store(text), redis=redis or RedisSettings()))
    assert (place.name, place.takes_enqueues) == ("1", True)
    assert isinstance(place.endpoint, RedisEndpoint)
    return place.endpoint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://u:p@r:6380/3", RedisUrl("r", 6380, "u", "p", 3)),
        ("redis://r", RedisUrl("r")),
        ("redis://:p@r/", RedisUrl("r", 6379, None, "p")),
        ("rediss://r/0", RedisUrl("r", tls=True)),
        ("redis://u:a%2Fb%40c%23%25@10.0.0.1", RedisUrl("10.0.0.1", 6379, "u", "a/b@c#%")),
        ("redis://[::1]:6379/1", RedisUrl("::1", db=1)),
        ("redis://u@/2?socket=/run/redis.sock", RedisUrl("", 6379, "u", None, 2, "/run/redis.sock")),
        (
            "rediss://u@/1?sentinel=s1&sentinel=[::1]:7&master=jobs",
            RedisUrl("", 6379, "u", None, 1, None, True, SENTINELS, "jobs"),
        ),
        ("redis:///?master=jobs&sentinel=s1:26379,[::1]:7", RedisUrl("", sentinels=SENTINELS, master="jobs")),
    ],
)
def test_a_url_is_taken_apart(text: str, expected: RedisUrl) -> None:
    assert url(text) == expected


def test_what_a_url_leaves_out_comes_from_the_settings() -> None:
    given_elsewhere = RedisSettings(user="jobs", password="p", sentinels=("s1", "[::1]:7"))
    assert the_shard("redis://r", given_elsewhere) == RedisEndpoint("r", 6379, "jobs", "p")
    assert the_shard("redis://u:q@r/2", given_elsewhere) == RedisEndpoint("r", 6379, "u", "q", 2)
    assert the_shard("redis://r") == RedisEndpoint("r", 6379)
    assert the_shard("rediss://r").tls is True
    found = the_shard("redis://?master=m", given_elsewhere)
    assert (found.master, found.sentinels) == ("m", SENTINELS)
    assert the_shard("redis://?master=m&sentinel=other", given_elsewhere).sentinels == (("other", 26379),)


def test_the_password_of_a_file_goes_before_that_of_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from the file\n# not this\n")
    assert the_shard("redis://r", RedisSettings(password="p", password_file=file)).password == "from the file"
    assert the_shard("redis://u:q@r", RedisSettings(password="p", password_file=file)).password == "q"


def test_the_shard_of_a_url_follows_the_password_file(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("old")
    source = ShardSource(Settings(store=parse_store("redis://r"), redis=RedisSettings(password_file=password)))
    password.write_text("new")
    assert source.refresh()
    assert source.places[0].endpoint.password == "new"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("redis://", "names no host"),
        (f"redis://:{SECRET}@", "names no host"),
        (f"redis://u:{SECRET}@r:0", "port 0"),
        (f"redis://u:{SECRET}@r:many", "is no URL with a host and a port"),
        (f"redis://u:{SECRET}/word@r", "percent-encoded"),
        (f"redis://u:{SECRET}#word@r", "percent-encoded"),
        (f"redis://u:{SECRET}%word@r", "percent-encoded"),
        (f"redis://u:12/{SECRET}@r", "has a database that is no number"),
        (f"redis://u:{SECRET}@r/jobs", "has a database that is no number"),
        (f"redis://u:{SECRET}@r/-1", "has a database that is no number"),
        (f"redis://u:{SECRET}@r/1?sockt=/y", "(did you mean socket?)"),
        (f"redis://u@r?password={SECRET}", "has an option that there is not"),
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
    text = f"rediss://u:{quoted}@r.example/2"
    location = parse_store(text)
    assert isinstance(location.url, RedisUrl)
    assert location.url.password == password
    for shown in (str(location), repr(location), str(location.url), repr(location.url), without_password(text)):
        assert quoted not in shown
    assert str(location) == "rediss://u@r.example:6379/2"
    raw = f"redis://u:{password}@r.example/2"
    assert password not in without_password(raw)
    complaint = complaint_about(raw)
    assert complaint is None or password not in complaint


@pytest.mark.parametrize(
    "text",
    [
        "redis://u@r:6379/0",
        "rediss://[::1]:1/3",
        "redis://u@/0?socket=/s",
        "redis:///1?sentinel=a:26379&sentinel=[::1]:2&master=m",
    ],
)
def test_a_url_is_shown_as_it_can_be_written(text: str) -> None:
    assert str(url(text)) == text
    assert url(str(url(text))) == url(text)


def test_settings_never_show_a_password() -> None:
    """As text, as a value and as a list of all settings; the Sentinels' neither."""
    given_all = {"store": f"redis://u:{SECRET}@r", "redis.password": SECRET, "redis.sentinel_password": SECRET}
    loaded = load(flags=given_all)
    shown = str([*shown_settings(loaded), loaded.settings, find_shards(loaded.settings)])
    assert SECRET not in shown
    assert "redis://u@r:6379/0" in shown


def test_a_shard_file_is_found_beside_the_settings(tmp_path: Path) -> None:
    assert parse_store("redis:shards.json", tmp_path) == StoreLocation("redis", shard_file=tmp_path / "shards.json")
    assert str(parse_store("redis:shards.json")) == "redis:shards.json"


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"redis.key_prefix": "a{b"}, "key_prefix must be at most 40 letters"),
        ({"redis.tls_key": "key.pem"}, "tls_key needs tls_cert"),
        ({"redis.tls": "true", "redis.tls_ca": "nowhere.pem"}, "nowhere.pem: No such file or directory"),
        ({"redis.password_file": "nowhere"}, "nowhere can't be read"),
        ({"redis.sentinels": "a b"}, "not HOST:PORT"),
        ({"redis.memory_used_max_percent": "101"}, "out of range"),
    ],
)
def test_what_is_wrong_with_the_table_redis_is_said_before_anything_starts(
    flags: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        load(flags={"store": "redis://r", **flags})


def test_tls_files_that_nobody_uses_give_a_warning(tmp_path: Path) -> None:
    loaded = load(flags={"store": "redis://r", "redis.tls_ca": str(tmp_path / "ca.pem")})
    assert any("redis.tls is false" in warning for warning in loaded.warnings)


def test_without_the_driver_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.server.config.checks.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install .*\[redis\]'"):
        load(flags={"store": "redis://r"})


def test_several_processes_may_share_redis() -> None:
    assert load(flags={"store": "redis://r", "processes": 4}).settings.processes == 4
