"""Names of queues."""

from __future__ import annotations

from functools import reduce
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.domain.errors import ErrorCode, QueueNameInvalid, QueueNameTooLong
from pinlater.domain.queue import (
    QUEUE_NAME_CHARS_MAX,
    Life,
    PartitionNumber,
    Queue,
    QueueConfig,
    Versions,
    check_queue_name,
    queue_of,
    settings_text,
)


@pytest.mark.parametrize("name", ["a", "Z", "0", "_", "emails", "Emails_2", "q" * 50, "q" * QUEUE_NAME_CHARS_MAX])
def test_legal_names(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a-b", "a.b", "a:b", "é", "a\n", "\x00", "q\x00", "٣", "ａ", "../etc", "'; --", "a" * 99 + "!"],
)
def test_other_characters_are_refused(name: str) -> None:
    """With the contract's code and text, which people grep for."""
    with pytest.raises(QueueNameInvalid) as caught:
        check_queue_name(name)
    assert caught.value.code is ErrorCode.QUEUE_NAME_INVALID
    assert caught.value.message == f"Invalid queue name: {name}"


@pytest.mark.parametrize("length", [65, 100, 1_000_000])
def test_long_names_are_refused(length: int) -> None:
    with pytest.raises(QueueNameTooLong) as caught:
        check_queue_name("q" * length)
    assert caught.value.code is ErrorCode.QUEUE_NAME_TOO_LONG
    assert str(length) in caught.value.message
    assert len(caught.value.message) < 200


@given(st.text(max_size=100))
def test_any_text_is_a_name_or_one_of_two_errors(name: str) -> None:
    try:
        check_queue_name(name)
    except (QueueNameInvalid, QueueNameTooLong):
        return
    assert name.isascii()
    assert name.replace("_", "a").isalnum()
    assert 1 <= len(name) <= QUEUE_NAME_CHARS_MAX


_VERSIONS = st.sampled_from(["", "1", "2", "3"])
_LIVES = st.builds(Life, st.integers(0, 3), st.integers(0, 3))
_QUEUES = st.builds(
    lambda life, versions: Queue("q", QueueConfig(), False, versions).with_life(life),
    _LIVES,
    st.builds(Versions, _VERSIONS, _VERSIONS, _VERSIONS),
)


@given(st.integers(0, 2**42), st.integers(0, 2**42), st.integers(0, 2**64 - 1))
def test_a_change_is_later_than_what_it_replaces_whatever_the_clocks_say(first: int, second: int, bits: int) -> None:
    """A server whose clock is behind may make it."""
    before = Versions().following(first, bits)
    assert before > ""
    assert Versions("", before).following(second, 0) > before
    assert Versions(before, "").following(second, 0) > before
    assert Versions("", "", before).following(second, 0) > before


@given(st.lists(_QUEUES, min_size=1, max_size=4), st.randoms())
def test_the_newest_of_several_rows_is_the_same_in_any_order(queues: list[Queue], random: Random) -> None:
    queues = [queue._replace(config=QueueConfig(max_backlog=len(queue.versions.config))) for queue in queues]
    shuffled = random.sample(queues, len(queues))
    newest, other = reduce(Queue.newest, queues), reduce(Queue.newest, shuffled)
    assert (newest.versions, newest.life) == (other.versions, other.life)
    assert newest.newest(newest) == newest


@given(_QUEUES, _QUEUES)
def test_nothing_is_set_that_was_set_before_the_newest_deletion(one: Queue, other: Queue) -> None:
    newest = one.newest(other)
    for version in newest.versions:
        assert not version or int(version) > newest.life.deleted_ms
    if newest.life.deleted_ms:
        version = f"{newest.life.deleted_ms}"
        assert newest.changed(QueueConfig(max_backlog=9), True, version, auto_partitions=9) == newest


def test_the_number_of_an_operator_and_that_of_the_servers_never_replace_each_other() -> None:
    """The operator's is in force while it is set."""
    grown = Queue("q").changed(None, None, "0000000000002.2", auto_partitions=4)
    assert grown.partitions == PartitionNumber(4, True, 2)
    set_by_one = grown.changed(QueueConfig(partitions=3), None, "0000000000001.1")
    assert set_by_one.partitions == PartitionNumber(3, False, 1)
    assert set_by_one.changed(None, None, "0000000000003.3", auto_partitions=2).partitions.number == 3
    again = set_by_one.changed(QueueConfig(max_backlog=7), None, "0000000000004.4")
    assert again.partitions == PartitionNumber(4, True, 2)
    older = Queue("q").changed(None, None, "0000000000001.9", auto_partitions=8)
    assert grown.newest(older).partitions == older.newest(grown).partitions == grown.partitions
    deleted = grown.newest(Queue("q", life=Life(5, 2)))
    assert (deleted.partitions, deleted.auto_changed_ms) == (PartitionNumber(1, True), 0)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (PartitionNumber(1, True), "1 partition (automatic)"),
        (PartitionNumber(2, True, 1_000), "2 partitions (automatic, for 5s)"),
        (PartitionNumber(3, False, 1_000), "3 partitions (set by an operator, settings changed 5s ago)"),
    ],
)
def test_a_number_of_partitions_is_told_with_its_author(number: PartitionNumber, told: str) -> None:
    assert number.told(6_000) == told


def test_settings_come_back_as_they_were_stored_with_and_without_versions() -> None:
    """Also those that an older program stored, and those that a newer one added something to."""
    config = QueueConfig(max_jobs_per_second=0.1, max_backlog=0)
    lives = (Life(), Life(1_767_225_600_000), Life(2, 1), Life(0, 1))
    rows = (
        Queue("q"),
        Queue("q", config, True),
        Queue("q", config, False, Versions("1", "2")),
        Queue("q", config, False, Versions("1", "", "2"), auto_partitions=4),
    )
    for queue in (row._replace(life=life) for row in rows for life in lives):
        assert queue_of("q", settings_text(queue), queue.paused) == queue
    assert queue_of("q", '{"max_backlog": 3, "colour": "red", "versions": ["1", "2", "3", "4"]}', True) == Queue(
        "q", QueueConfig(max_backlog=3), True, Versions("1", "2", "3")
    )


def test_a_queue_that_never_grew_is_stored_as_before_there_was_an_automatic_number() -> None:
    queue = Queue("q", QueueConfig(partitions=2), False, Versions("1", "2"))
    assert settings_text(queue) == '{"partitions": 2, "versions": ["1", "2"]}'
    grown = queue.changed(None, None, "3", auto_partitions=4)
    assert settings_text(grown) == '{"partitions": 2, "versions": ["1", "2", "3"], "auto_partitions": 4}'
