"""The original's file of MySQL shards: what is in it, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.files import FileBroken
from pinlater.server.config.kinds import SHARDED
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_entry import ConfiguredShard
from pinlater.server.config.shard_file import find_shards
from pinlater.server.config.store import StoreLocation
from pinlater.server.storage.mysql.settings import MysqlEndpoint, MysqlSettings

THE_ORIGINALS = """
{
    "pinlaterdb001": {
        "master": {"host": "host1", "port": 3306},
        "slave": {"host": "host1", "port": 3306},
        "user": "user",
        "passwd": "secret"
    },
    "pinlaterdb002": {
        "master": {"host": "host2", "port": 3307},
        "slave": {"host": "host2", "port": 3307},
        "user": "user",
        "passwd": "secret",
        "dequeueOnly": true
    },
    "otherdb001": {"master": "not for us"}
}
"""
ENTRY: Mapping[str, Any] = {"master": {"host": "h", "port": 1}, "user": "u", "passwd": "very-secret"}


def settings(path: Path, **mysql: Any) -> Settings:
    return Settings(store=StoreLocation("mysql", shard_file=path), mysql=MysqlSettings(**mysql))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shards.json"
    path.write_text(THE_ORIGINALS)
    return path


def test_the_originals_file_is_read_as_it_is(path: Path) -> None:
    assert find_shards(settings(path, host_prefix="pinlaterdb")) == [
        ConfiguredShard("1", "pinlaterdb001", MysqlEndpoint("host1", 3306, "user", "secret", "pinlater_1")),
        ConfiguredShard(
            "2", "pinlaterdb002", MysqlEndpoint("host2", 3307, "user", "secret", "pinlater_2"), takes_enqueues=False
        ),
    ]


def test_an_entry_that_is_lost_is_told_as_such(path: Path) -> None:
    """All its databases are."""
    path.write_text(json.dumps({"db1": ENTRY, "db2": {**ENTRY, "lostForGood": True}}))
    places = find_shards(settings(path, databases_per_server=2))
    assert [(place.name, place.lost) for place in places] == [
        ("1", False),
        ("1d1", False),
        ("2", True),
        ("2d1", True),
    ]


def test_each_database_of_a_replica_set_is_a_shard(path: Path) -> None:
    places = find_shards(settings(path, host_prefix="pinlaterdb", databases_per_server=3, database_prefix="p"))
    assert [place.name for place in places] == ["1", "1d1", "1d2", "2", "2d1", "2d2"]
    endpoints = [place.endpoint for place in places[:3]]
    assert [isinstance(where, MysqlEndpoint) and where.database for where in endpoints] == ["p_1", "p_1d1", "p_1d2"]
    assert {place.endpoint.host for place in places[3:]} == {"host2"}


def test_shards_are_in_the_order_of_their_numbers(path: Path) -> None:
    path.write_text(json.dumps({f"db{number}": ENTRY for number in (10, 9, 100)}))
    assert [place.name for place in find_shards(settings(path))] == ["9", "10", "100"]


def test_missing_fields_of_an_entry_come_from_the_settings(path: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("from a file")
    path.write_text(
        '{"db1": {"master": {"host": "h", "port": "3306"}}, "db2": {"socket": "/s", "passwd": "", "tls": true}}'
    )
    one, two = find_shards(settings(path, user="jobs", password_file=tmp_path / "password"))
    assert one.endpoint == MysqlEndpoint("h", 3306, "jobs", "from a file", "pinlater_1")
    assert two.endpoint == MysqlEndpoint("localhost", 3306, "jobs", "", "pinlater_2", "/s", True)


def entry(**changes: Any) -> str:
    return json.dumps({"db1": {**ENTRY, **changes}})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Expecting value"),
        ("[]", "it is not an object of shards by name"),
        ("{}", "it names no shard"),
        (json.dumps({"db1": {**ENTRY, "lostForGood": True}}), "every shard in it is lost"),
        (json.dumps({"db1": {**ENTRY, "lostForGood": 1}}), "'db1': lostForGood is not true or false"),
        (json.dumps({"db1": {**ENTRY, "lostForgood": True}}), "did you mean lostForGood"),
        ('{"db": {}}', "'db' has no number at its end"),
        ('{"db1": {}, "db01": {}}', "'db1' has no master with host and port"),
        (json.dumps({"db1": ENTRY, "db01": ENTRY}), "'db1' and 'db01' have the same number"),
        ('{"db1": {}, "db1": {}}', "'db1' occurs twice"),
        ('{"db1": 1}', "'db1' is not an object with master, user and passwd"),
        ('{"db9999999999": {}}', "'db9999999999' has a number above 999,999,999"),
        (entry(master=None), "'db1' has no master with host and port"),
        (entry(master={"port": 1}), "'db1': master's host is not the name"),
        (entry(master={"host": "a b", "port": 1}), "'db1': master's host is not the name"),
        (entry(master={"host": "h"}), "'db1': master's port is not a number from 1 to 65535"),
        (entry(master={"host": "h", "port": 0}), "'db1': master's port is not a number from 1 to 65535"),
        (entry(master={"host": "h", "port": 65536}), "'db1': master's port is not a number from 1 to 65535"),
        (entry(master={"host": "h", "port": True}), "'db1': master's port is not a number from 1 to 65535"),
        (entry(master={"host": "h", "port": 1.5}), "'db1': master's port is not a number from 1 to 65535"),
        (entry(user=1), "'db1': user is not a string"),
        (entry(passwd=["very-secret"]), "'db1': passwd is not a string"),
        (entry(passwd="very-secret\0"), "'db1': passwd has a zero byte in it"),
        (entry(dequeueOnly="true"), "'db1': dequeueOnly is not true or false"),
        (entry(dequeuOnly=True), "'db1' has an unknown 'dequeuOnly' (did you mean dequeueOnly?)"),
        (entry(password="very-secret"), "'db1' has an unknown 'password' (did you mean passwd?)"),
        (entry(tls=1), "'db1': tls is not true or false"),
    ],
)
def test_an_error_in_the_file_is_reported_with_its_key(path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(FileBroken) as caught:
        find_shards(settings(path))
    assert str(caught.value).startswith(f"{path} is broken: ")
    assert complaint in str(caught.value)
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"otherdb1": {}}', "no key begins with 'pinlaterdb' (mysql.host_prefix)"),
        ('{"pinlaterdbx1": {}}', "'pinlaterdbx1' has no number behind 'pinlaterdb'"),
        ('{"pinlaterdb": {}}', "'pinlaterdb' has no number behind 'pinlaterdb'"),
    ],
)
def test_with_a_prefix_its_keys_must_have_a_number(path: Path, text: str, complaint: str) -> None:
    path.write_text(text)
    with pytest.raises(FileBroken) as caught:
        find_shards(settings(path, host_prefix="pinlaterdb"))
    assert complaint in str(caught.value)


def test_words_of_other_programs_are_ignored(path: Path) -> None:
    path.write_text(entry(comment="ours", weight=3))
    assert [place.name for place in find_shards(settings(path))] == ["1"]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["db1", "db2", "master", "host", "port", "user", "passwd", "dequeueOnly", "tls", "socket"]) | st.text(), inner
)))  # fmt: skip
def test_whatever_is_in_the_file_it_gives_shards_or_one_clear_error(document: Any) -> None:
    with suppress(ValueError):
        assert SHARDED["mysql"].parse(json.dumps(document).encode(), Settings())
