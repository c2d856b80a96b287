"""One entry of a shard file is changed, and no other sign of it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.shard_edit import read_text, replace_text, with_flag, without_entry

DEQUEUE_ONLY, LOST = "dequeueOnly", "lostForGood"
FILE = """\
{
    "db1": {
        "master": {"host": "a", "port": 1},
        "weight": 1.50
    },

    "db2" : { "dequeueOnly" : false, "x": "}, \\" {" },
    "db3": {}
}
"""


def test_the_flag_is_set_where_the_entry_stands() -> None:
    assert with_flag(FILE, "db1", DEQUEUE_ONLY, True) == FILE.replace(
        '"weight": 1.50\n', '"weight": 1.50,\n        "dequeueOnly": true\n'
    )
    assert with_flag(FILE, "db2", DEQUEUE_ONLY, True) == FILE.replace('"dequeueOnly" : false', '"dequeueOnly" : true')
    assert with_flag(FILE, "db3", DEQUEUE_ONLY, True) == FILE.replace('"db3": {}', '"db3": {"dequeueOnly": true}')


def test_an_entry_is_marked_as_lost_where_it_stands() -> None:
    assert with_flag(FILE, "db3", LOST, True) == FILE.replace('"db3": {}', '"db3": {"lostForGood": true}')


def test_an_entry_is_taken_out_with_its_comma() -> None:
    assert without_entry(FILE, "db3") == FILE.replace(',\n    "db3": {}', "")
    assert without_entry('{"a": 1, "b": 2, "c": 3}', "b") == '{"a": 1, "c": 3}'
    assert without_entry('{ "a": 1, "b": 2 }', "a") == '{ "b": 2 }'
    assert without_entry('{"a": 1}', "a") == "{}"


REDIS_FILE = """\
{"shards": [
    {
        "name": "1",
        "shardConfig": {
            "master": {"host": "a", "port": 1},
            "slave": {"host": "b", "port": 1}
        }
    },
    {"name":"2", "shardConfig": {"dequeueOnly" : false}},
    {"shardConfig": {}, "name": "]\\"3"}
], "other": 1.50}
"""


def test_the_flag_of_a_redis_shard_is_set_beside_its_master() -> None:
    assert with_flag(REDIS_FILE, "1", DEQUEUE_ONLY, True) == REDIS_FILE.replace(
        '"slave": {"host": "b", "port": 1}\n',
        '"slave": {"host": "b", "port": 1},\n            "dequeueOnly": true\n',
    )
    assert with_flag(REDIS_FILE, "2", DEQUEUE_ONLY, True) == REDIS_FILE.replace(
        '"dequeueOnly" : false', '"dequeueOnly" : true'
    )
    third = with_flag(REDIS_FILE, ']"3', DEQUEUE_ONLY, True)
    assert third == REDIS_FILE.replace('"shardConfig": {}', '"shardConfig": {"dequeueOnly": true}')


def test_a_redis_shard_is_taken_out_of_the_list_with_its_comma() -> None:
    assert without_entry(REDIS_FILE, "2") == REDIS_FILE.replace(
        ',\n    {"name":"2", "shardConfig": {"dequeueOnly" : false}}', ""
    )
    assert without_entry('{"shards": [ {"name": "a"}, {"name": "b"} ]}', "a") == '{"shards": [ {"name": "b"} ]}'
    assert without_entry('{"shards": [{"name": "a"}]}', "a") == '{"shards": []}'


@pytest.mark.parametrize(
    "change", [lambda text: without_entry(text, "4"), lambda text: with_flag(text, "4", DEQUEUE_ONLY, True)]
)
def test_a_redis_shard_that_is_not_there_is_an_error(change: Any) -> None:
    with pytest.raises(ValueError, match="no entry '4'"):
        change(REDIS_FILE)


@pytest.mark.parametrize(
    "change", [lambda text: without_entry(text, "db4"), lambda text: with_flag(text, "db4", DEQUEUE_ONLY, True)]
)
def test_an_entry_that_is_not_there_is_an_error(change: Any) -> None:
    with pytest.raises(ValueError, match="no entry 'db4'"):
        change(FILE)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.dictionaries(st.sampled_from(["dequeueOnly", "master", "é", '"', "\\"]), VALUES, max_size=4)


@given(
    document=st.dictionaries(st.text(max_size=4), ENTRIES, min_size=1, max_size=4),
    pick=st.randoms(use_true_random=False),
    indent=st.sampled_from([None, 0, 2, "\t"]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :  ")]),
    ascii_only=st.booleans(),
    mark=st.sampled_from(["", "\ufeff"]),
    value=st.booleans(),
)
def test_in_every_layout_only_the_entry_changes(
    document: dict[str, Any],
    pick: Any,
    indent: Any,
    separators: tuple[str, str],
    ascii_only: bool,
    mark: str,
    value: bool,
) -> None:
    key = pick.choice(sorted(document))
    text = mark + json.dumps(document, indent=indent, separators=separators, ensure_ascii=ascii_only)
    changed = with_flag(text, key, DEQUEUE_ONLY, value)
    assert json.loads(changed.removeprefix("\ufeff")) == {**document, key: {**document[key], "dequeueOnly": value}}
    assert changed.startswith(mark)
    left = {name: entry for name, entry in document.items() if name != key}
    assert json.loads(without_entry(text, key).removeprefix("\ufeff")) == left


@given(
    shards=st.lists(
        st.fixed_dictionaries({"name": st.text(max_size=3), "shardConfig": ENTRIES}),
        min_size=1,
        max_size=4,
        unique_by=lambda shard: str(shard["name"]),
    ),
    others=st.dictionaries(st.sampled_from(["a", "z"]), VALUES),
    pick=st.randoms(use_true_random=False),
    indent=st.sampled_from([None, 0, 2, "\t"]),
    value=st.booleans(),
)
def test_in_every_layout_only_the_redis_shard_changes(
    shards: list[dict[str, Any]], others: dict[str, Any], pick: Any, indent: Any, value: bool
) -> None:
    place = pick.randrange(len(shards))
    text = json.dumps({**others, "shards": shards}, indent=indent)
    wanted = json.loads(text)
    changed = with_flag(text, shards[place]["name"], DEQUEUE_ONLY, value)
    wanted["shards"][place]["shardConfig"]["dequeueOnly"] = value
    assert json.loads(changed) == wanted
    del wanted["shards"][place]
    assert json.loads(without_entry(text, shards[place]["name"])) == {**others, "shards": wanted["shards"]}


def test_the_file_is_replaced_as_a_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "shards.json"
    path.write_bytes(b"old\r\n")
    path.chmod(0o640)
    before, number = read_text(path), path.stat().st_ino
    replace_text(path, before, "new é\r\n")
    assert path.read_bytes() == "new é\r\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.stat().st_ino != number
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_file_keeps_owner_group_and_mode(tmp_path: Path) -> None:
    """A server that is not root reads it as a member of its group."""
    path = tmp_path / "shards.json"
    path.write_text("old")
    os.chown(path, 9011, 9010)
    path.chmod(0o640)
    replace_text(path, "old", "new")
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (9011, 9010, 0o640)


def test_the_file_stays_as_it_is_where_its_group_can_not_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command fails, rather than that servers fail at their next start."""

    def refuse(descriptor: int, owner: int, group: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "shards.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fchown", refuse)
    replace_text(path, "old", "of the same group")
    found = os.stat_result((*path.stat()[:5], path.stat().st_gid + 1, *path.stat()[6:]))
    monkeypatch.setattr(Path, "stat", lambda self, **_: found)
    with pytest.raises(PermissionError):
        replace_text(path, "of the same group", "new")
    assert read_text(path) == "of the same group"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """The link's target is the file that is read."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "shards.json").write_text("old")
    link = tmp_path / "shards.json"
    link.symlink_to("real/shards.json")
    replace_text(link, "old", "new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "shards.json").read_text() == "new"


def test_a_concurrent_change_by_another_program_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "shards.json"
    path.write_text("theirs")
    with pytest.raises(ValueError, match="changed by another program"):
        replace_text(path, "before", "ours")
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]
