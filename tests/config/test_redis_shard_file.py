"""The original's file of Redis shards: what is in it, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.cli.server_settings import store_of
from pinlater.server.config.errors import SettingsError
from pinlater.server.config.files import FileBroken
from pinlater.server.config.kinds import SHARDED
from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import find_shards
from pinlater.server.config.sources import Given, Origin
from pinlater.server.config.store import StoreLocation
from pinlater.server.storage.redis.settings import RedisEndpoint, RedisSettings

THE_ORIGINALS = """
{
    "shards": [
        {
            "name": "1",
            "shardConfig": {
                "master": {"host": "host1", "port": 6379},
                "slave": {"host": "host1", "port": 6379},
                "dequeueOnly": false
            }
        },
        {
            "name": "2",
            "shardConfig": {
                "master": {"host": "host2", "port": 6380},
                "slave": {"host": "host2", "port": 6380},
                "dequeueOnly": true
            }
        }
    ]
}
"""
CONFIG: Mapping[str, Any] = {"master": {"host": "h", "port": 1}, "passwd": "very-secret"}


def settings(path: Path, **redis: Any) -> Settings:
    return Settings(store=StoreLocation("redis", shard_file=path), redis=RedisSettings(**redis))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shards.json"
    path.write_text(THE_ORIGINALS)
    return path


def test_the_originals_file_is_read_as_it_is(path: Path) -> None:
    assert find_shards(settings(path, user="u", password="p")) == [
        ConfiguredShard("1", "1", RedisEndpoint("host1", 6379, "u", "p")),
        ConfiguredShard("2", "2", RedisEndpoint("host2", 6380, "u", "p"), takes_enqueues=False),
    ]


def shard(name: object = "1", **changes: Any) -> str:
    config = {**CONFIG, **changes}
    return json.dumps({"shards": [{"name": name, "shardConfig": config}]})


def test_our_own_fields_give_the_address_and_the_user(path: Path) -> None:
    path.write_text(shard("a-b.c", user="u", db=3, tls=True, socket="/s"))
    [place] = find_shards(settings(path))
    assert place == ConfiguredShard("a-b.c", "a-b.c", RedisEndpoint("", 6379, "u", "very-secret", 3, "/s", True))
    path.write_text(shard(sentinelMaster="m", sentinels=["s1", "s2:7"]))
    [place] = find_shards(settings(path, sentinels=("other",)))
    assert place.endpoint == RedisEndpoint("", password="very-secret", sentinels=(("s1", 26379), ("s2", 7)), master="m")
    path.write_text(shard(sentinelMaster="m", master=None))
    [place] = find_shards(settings(path, sentinels=("other",)))
    assert place.endpoint == RedisEndpoint("", password="very-secret", sentinels=(("other", 26379),), master="m")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", "it is not an object"),
        ("{}", 'it has no list "shards"'),
        ('{"shards": {}}', 'it has no list "shards"'),
        ('{"shards": []}', "it names no shard"),
        (
            json.dumps({"shards": [{"name": "1", "shardConfig": {**CONFIG, "lostForGood": True}}]}),
            "every shard in it is lost",
        ),
        ('{"shards": [1]}', "shard 1 of the list is not an object with name and shardConfig"),
        ('{"shards": [{}]}', "shard 1 of the list has no name"),
        (shard(1), "shard 1 of the list has no name of letters, digits"),
        (shard("a:b"), "shard 1 of the list has no name of letters, digits"),
        (shard("x" * 65), "shard 1 of the list has no name of letters, digits"),
        ('{"shards": [{"name": "1"}]}', "'1' has no shardConfig"),
        (
            '{"shards": [{"name": "1", "shardConfg": {}}]}',
            "'1' has an unknown 'shardConfg' (did you mean shardConfig?)",
        ),
        (json.dumps({"shards": [{"name": "1", "shardConfig": CONFIG}] * 2}), "the shard '1' occurs twice"),
        (shard(master=None), "'1' has no master with host and port"),
        (shard(master={"host": "h", "port": 0}), "'1': master's port is not a number"),
        (shard(dequeueOnly="true"), "'1': dequeueOnly is not true or false"),
        (shard(dequeuOnly=True), "'1' has an unknown 'dequeuOnly' (did you mean dequeueOnly?)"),
        (shard(password="very-secret"), "'1' has an unknown 'password' (did you mean passwd?)"),
        (shard(passwd=["very-secret"]), "'1': passwd is not a string"),
        (shard(db="0"), "'1': db is not the number of a database"),
        (shard(db=-1), "'1': db is not the number of a database"),
        (shard(sentinels="s"), "'1': sentinels is not a list"),
        (shard(sentinels=["a b"], sentinelMaster="m"), "'1' has an address of a Sentinel that is not HOST:PORT"),
        (shard(sentinels=["s"]), "'1' has sentinels, and no sentinelMaster"),
        (shard(sentinelMaster="m"), "'1' has a sentinelMaster, and neither it nor the settings"),
        (shard(sentinels=["s"], sentinelMaster="m", socket="/s"), "'1' has a socket and a sentinelMaster"),
    ],
)
def test_an_error_in_the_file_is_reported_with_its_shard(path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(FileBroken) as caught:
        find_shards(settings(path))
    assert str(caught.value).startswith(f"{path} is broken: ")
    assert complaint in str(caught.value)
    assert "very-secret" not in str(caught.value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["shards", "name", "shardConfig", "master", "host", "port", "dequeueOnly", "sentinels", "sentinelMaster"]), inner
)))  # fmt: skip
def test_whatever_is_in_the_file_it_gives_shards_or_one_clear_error(document: Any) -> None:
    with suppress(ValueError):
        assert SHARDED["redis"].parse(json.dumps({"shards": document}).encode(), Settings())


def test_the_flag_for_a_shard_file_finds_out_of_which_kind_it_is(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mysql.json").write_text('{"db1": {"master": {"host": "h", "port": 1}}}')
    for file, kind in ((path, "redis"), (tmp_path / "mysql.json", "mysql"), (tmp_path / "nowhere.json", "mysql")):
        assert store_of(None, file) == Given("store", f"{kind}:{file}", Origin("flag", "--shards"))


def test_a_problem_of_the_flag_for_a_shard_file_names_that_flag(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(flags={"store": store_of(None, tmp_path / "nowhere.json")})
    assert caught.value.problems == (f"--shards: {tmp_path}/nowhere.json can't be read: No such file or directory",)


def test_each_kind_of_file_given_to_the_other_store_is_said(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"it is a file of Redis shards: redis:FILE is the store"):
        load(flags={"store": f"mysql:{path}"})
    (tmp_path / "mysql.json").write_text('{"db1": {"master": {"host": "h", "port": 1}}}')
    with pytest.raises(SettingsError, match=r'it has no list "shards", as a file of Redis shards has'):
        load(flags={"store": f"redis:{tmp_path / 'mysql.json'}"})


def test_a_file_with_a_password_that_all_may_read_gives_a_warning(path: Path) -> None:
    """The original's file of Redis shards holds none, and may be read by all."""
    path.chmod(0o644)
    assert load(flags={"store": f"redis:{path}"}).warnings == ()
    path.write_text(shard())
    (warning,) = load(flags={"store": f"redis:{path}"}).warnings
    assert warning.startswith(f"{path} can be read by every user")
