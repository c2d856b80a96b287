"""The files that are read again while the server runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.server.config.files import FileBroken, rate_limits_in, server_count_in

GOOD = '{"queues": [{"name": "emails", "queueConfig": {"maxJobsPerSecond": 100}}]}'
OTHER = '{"queues": [{"name": "emails", "queueConfig": {"maxJobsPerSecond": 0.1}}]}'


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    path = tmp_path / "limits.json"
    path.write_text(GOOD)
    return path


@pytest.fixture
def servers(tmp_path: Path) -> Path:
    path = tmp_path / "servers"
    path.write_text("a:9010\nb:9010\n")
    return path


def test_limits_are_read_by_queue(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text(
        '{"comment": 1, "queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": 0, "x": 1}},'
        ' {"name": "b", "queueConfig": {"maxJobsPerSecond": 0.1}}]}'
    )
    assert rate_limits_in(path).value == {"a": 0.0, "b": 0.1}


def test_a_changed_file_is_taken_over_once(limits: Path) -> None:
    file = rate_limits_in(limits)
    assert not file.refresh()
    limits.write_text(OTHER)
    assert file.refresh()
    assert file.value == {"emails": 0.1}
    assert not file.refresh()


def test_a_change_within_one_tick_of_the_time_stamp_is_seen(limits: Path) -> None:
    before = limits.stat()
    file = rate_limits_in(limits)
    limits.write_text(GOOD.replace("100", "200"))
    os.utime(limits, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.refresh()
    assert file.value == {"emails": 200.0}


def test_a_file_that_was_only_touched_is_no_change(limits: Path) -> None:
    file = rate_limits_in(limits)
    os.utime(limits, ns=(0, 0))
    assert not file.refresh()


def test_a_file_put_in_place_by_renaming_is_seen(limits: Path) -> None:
    file = rate_limits_in(limits)
    new = limits.with_suffix(".new")
    new.write_text(OTHER)
    new.replace(limits)
    assert file.refresh()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"queue": []}',
        '{"queues": {}}',
        '{"queues": [1]}',
        '{"queues": [{"queueConfig": {"maxJobsPerSecond": 1}}]}',
        '{"queues": [{"name": "", "queueConfig": {"maxJobsPerSecond": 1}}]}',
        '{"queues": [{"name": "a"}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobPerSecond": 1}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": -1}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": true}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": "1"}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": NaN}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": Infinity}}]}',
        '{"queues": [{"name": "a", "queueConfig": {"maxJobsPerSecond": 1e999}}]}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_a_broken_file_keeps_the_last_good_limits(limits: Path, content: str) -> None:
    file = rate_limits_in(limits)
    limits.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert not file.refresh()
    assert file.value == {"emails": 100.0}
    assert file.last_error is not None
    assert str(limits) in file.last_error


def test_a_broken_file_is_logged_loudly_and_once_for_each_content(
    limits: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = rate_limits_in(limits)
    for content in ("{", "{", "{", "[", "["):
        limits.write_text(content)
        file.refresh()
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 2
    assert "the last good values stay" in errors[0].getMessage()


def test_the_last_good_limits_stay_if_the_file_is_deleted(limits: Path) -> None:
    file = rate_limits_in(limits)
    limits.unlink()
    assert not file.refresh()
    assert file.value == {"emails": 100.0}
    assert file.last_error == f"{limits} can't be read: No such file or directory"


def test_a_corrected_file_has_no_error(limits: Path) -> None:
    file = rate_limits_in(limits)
    limits.write_text("{")
    file.refresh()
    limits.write_text(GOOD)
    assert not file.refresh()
    assert file.last_error is None
    limits.write_text(OTHER)
    assert file.refresh()


def test_a_file_too_long_is_broken_and_not_read_whole(limits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pinlater.server.config.files.FILE_BYTES_MAX", 10)
    with pytest.raises(FileBroken, match="longer than 10 bytes"):
        rate_limits_in(limits)


def test_at_the_start_a_broken_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileBroken, match="can't be read"):
        rate_limits_in(tmp_path / "missing.json")
    with pytest.raises(FileBroken, match="can't be read"):
        server_count_in(tmp_path)


def test_of_two_entries_for_a_queue_the_last_counts(limits: Path) -> None:
    entry = '{"name": "a", "queueConfig": {"maxJobsPerSecond": %d}}'
    limits.write_text(f'{{"queues": [{entry % 1}, {entry % 2}]}}')
    assert rate_limits_in(limits).value == {"a": 2.0}


@given(st.binary(max_size=200))
def test_any_bytes_give_limits_or_a_broken_file(content: bytes) -> None:
    with NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(content)
        try:
            limits = rate_limits_in(path).value
        except FileBroken:
            return
    assert all(rate >= 0 for rate in limits.values())


def test_servers_are_the_distinct_lines_that_are_not_empty(servers: Path) -> None:
    servers.write_text("a:9010\n\n b:9010 \r\na:9010\n\n")
    assert server_count_in(servers).value == 2


def test_a_server_that_joins_is_counted(servers: Path) -> None:
    file = server_count_in(servers)
    servers.write_text("a:9010\nb:9010\nc:9010\n")
    assert file.refresh()
    assert file.value == 3


def test_another_order_of_the_servers_is_no_change(servers: Path) -> None:
    file = server_count_in(servers)
    servers.write_text("b:9010\na:9010\n")
    assert not file.refresh()


def test_an_empty_server_set_is_ignored_and_the_old_number_kept(
    servers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = server_count_in(servers)
    servers.write_text("\n \n")
    assert not file.refresh()
    assert file.value == 2
    assert "is empty" in caplog.text
    servers.write_text("a:9010\nb:9010\n")
    assert not file.refresh()
    servers.write_text("a:9010\n")
    assert file.refresh()
    assert file.value == 1


def test_an_empty_server_set_at_the_start_is_one_server(servers: Path) -> None:
    servers.write_text("")
    assert server_count_in(servers).value == 1


def test_a_broken_server_set_keeps_the_number(servers: Path) -> None:
    file = server_count_in(servers)
    servers.write_bytes(b"\xff\n")
    assert not file.refresh()
    assert file.value == 2
    assert file.last_error is not None
