"""What the verdict takes for a repeat that overtook its first try, and what for a broken promise."""

from __future__ import annotations

import pytest

from pinlater.simulation.enqueue_tries import EnqueueTry, StoredCopy, was_overtaken


def copy(shard: str, stored_at_s: float, *tries: EnqueueTry) -> StoredCopy:
    return StoredCopy(shard, stored_at_s, tries)


def first(server: str, sent_s: float) -> EnqueueTry:
    return EnqueueTry(server, sent_s, None)


def repeat(server: str, sent_s: float, looked_from_s: float) -> EnqueueTry:
    return EnqueueTry(server, sent_s, looked_from_s)


@pytest.mark.parametrize(
    "copies",
    [
        [copy("1", 2.0, first("a", 1.0)), copy("2", 2.1, repeat("b", 2.05, 1.9))],
        [copy("2", 2.0, repeat("b", 1.9, 1.5)), copy("1", 9.0, first("a", 8.9))],
        [copy("1", 9.0, first("a", 8.9)), copy("2", 2.0, repeat("b", 1.9, 1.5))],
        [copy("1", 2.0, repeat("a", 1.9, 1.8)), copy("2", 2.1, repeat("b", 2.0, 1.9))],
        [copy("1", 2.0, repeat("b", 0.5, 0.4), first("a", 1.0)), copy("2", 2.1, repeat("b", 2.0, 1.9))],
    ],
    ids=["a race", "a late first try", "in another order", "two repeats", "one of two tries explains it"],
)
def test_a_server_that_could_not_know_of_the_other_try_breaks_no_promise(copies: list[StoredCopy]) -> None:
    assert was_overtaken(copies)


@pytest.mark.parametrize(
    "copies",
    [
        [copy("1", 2.0, first("a", 1.0)), copy("1", 2.1, repeat("b", 2.05, 1.9))],
        [copy("1", 2.0, first("a", 1.0)), copy("2", 2.1, repeat("a", 2.05, 1.9))],
        [copy("1", 2.0, first("a", 1.0)), copy("2", 2.5, repeat("b", 2.4, 2.3))],
        [copy("1", 2.0, first("a", 1.0)), copy("2", 2.1, first("b", 2.05))],
        [copy("1", 2.0, first("a", 1.0)), copy("2", 2.1, repeat("b", 2.2, 1.9))],
        [copy("1", 2.0), copy("2", 2.1, repeat("b", 2.0, 1.9))],
    ],
    ids=["one shard", "one server", "stored before the look", "two first tries", "sent later", "no try"],
)
def test_all_else_breaks_the_promise_of_request_keys(copies: list[StoredCopy]) -> None:
    assert not was_overtaken(copies)
