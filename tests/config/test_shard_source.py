"""The shards of a file while a server runs: the file is read again, and while it is broken, the shards stay as they were."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pinlater.server.config.files import FileBroken
from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.config.shard_file import ShardSource

FIRST: dict[str, Any] = {"master": {"host": "host1", "port": 3306}, "user": "u", "passwd": "secret"}
SECOND: dict[str, Any] = {"master": {"host": "host2", "port": 3307}, "user": "u", "dequeueOnly": True}
CONTENTS: dict[str, Any] = {
    "mysql": {"db1": FIRST, "db2": SECOND},
    "redis": {"shards": [{"name": "1", "shardConfig": FIRST}, {"name": "2", "shardConfig": SECOND}]},
}
NAMES_OF_THE_FIRST = {"mysql": "db1", "redis": "1"}


class ShardFile(NamedTuple):
    """A file of two shards, and the password of those that name none."""

    kind: str
    path: Path
    password: Path

    def settings(self) -> Settings:
        flags = {"store": f"{self.kind}:{self.path}", f"{self.kind}.password_file": str(self.password)}
        return load(flags=flags).settings

    def source(self) -> ShardSource:
        return ShardSource(self.settings())

    def change(self, old: str, new: str) -> None:
        self.path.write_text(self.path.read_text().replace(old, new))


@pytest.fixture(params=list(CONTENTS))
def file(request: pytest.FixtureRequest, tmp_path: Path) -> ShardFile:
    file = ShardFile(request.param, tmp_path / "shards.json", tmp_path / "password")
    file.path.write_text(json.dumps(CONTENTS[file.kind]))
    file.password.write_text("old")
    return file


def test_a_changed_file_gives_other_shards_once(file: ShardFile) -> None:
    source = file.source()
    assert not source.refresh()
    file.change("host1", "host3")
    file.change('"dequeueOnly": true', '"dequeueOnly": false')
    assert source.refresh()
    found = [(place.endpoint.host, place.endpoint.port, place.takes_enqueues) for place in source.places]
    assert found == [("host3", 3306, True), ("host2", 3307, True)]
    assert not source.refresh()


def test_another_layout_is_no_change(file: ShardFile) -> None:
    source = file.source()
    file.path.write_text(json.dumps(CONTENTS[file.kind], indent=4))
    assert not source.refresh()


def test_a_broken_file_keeps_the_shards_and_is_logged_once(file: ShardFile, caplog: pytest.LogCaptureFixture) -> None:
    source = file.source()
    before = source.places
    file.change("3306", '"many"')
    with caplog.at_level(logging.INFO):
        assert not source.refresh()
        assert not source.refresh()
        assert source.places == before
        assert source.last_error is not None
        file.change('"many"', "3306")
        assert not source.refresh()
    assert source.last_error is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert f"'{NAMES_OF_THE_FIRST[file.kind]}': master's port is not a number" in caplog.messages[0]
    assert "secret" not in caplog.text


def test_a_renewed_password_makes_each_shard_without_its_own_another(file: ShardFile) -> None:
    source = file.source()
    file.password.write_text("new\n")
    assert source.refresh()
    assert [place.endpoint.password for place in source.places] == ["secret", "new"]
    file.password.write_text("\n")
    assert not source.refresh()
    assert source.last_error is not None
    assert "first line" in source.last_error
    assert source.places[1].endpoint.password == "new"


def test_a_file_that_is_missing_at_the_start_is_an_error(file: ShardFile) -> None:
    settings = file.settings()
    file.path.unlink()
    with pytest.raises(FileBroken, match=r"shards\.json can't be read"):
        ShardSource(settings)
