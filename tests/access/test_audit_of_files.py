"""The audit has what a server takes over from its files (tokens, shards, limits, the number of servers), each change once however many
processes read it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pinlater.domain.access import Role, digest_of
from pinlater.server.access.tokens import Token
from pinlater.server.config.file_authors import FileAuthor
from pinlater.server.features.audit.trail import entry_for
from pinlater.server.main.file_changes import (
    changed_ms,
    limit_changes,
    server_set_changes,
    shard_changes,
    token_changes,
)
from pinlater.server.sharding.reload import MapChange
from pinlater.wire.generated.structs import AuditEntry

NOW_MS = 1_800_000_000_000


def token_entries(*changed: Any) -> list[AuditEntry]:
    return [entry_for(change) for change in token_changes(*changed)]


def shard_entries(*changed: Any) -> list[AuditEntry]:
    return [entry_for(change) for change in shard_changes(*changed)]


def limit_entries(*changed: Any) -> list[AuditEntry]:
    return [entry_for(change) for change in limit_changes(*changed)]


def token(name: str, *roles: Role, secret: str = "pinlater_x", expires_at_ms: int | None = None) -> Token:
    return Token(name, digest_of(secret + name), roles or (Role.READ,), ("mail*",), 1, expires_at_ms)


def test_tokens_that_came_changed_and_went_are_an_entry_each() -> None:
    before = [token("gone"), token("same"), token("more"), token("renewed")]
    after = [
        token("new", Role.WORK, expires_at_ms=9),
        token("same"),
        token("more", Role.ADMIN),
        token("renewed", secret="y"),
    ]

    found = token_entries(before, after, NOW_MS)

    assert [(entry.operation, json.loads(entry.arguments)) for entry in found] == [
        ("tokenRemoved", {"token": "gone", "roles": ["read"], "queues": ["mail*"]}),
        ("tokenChanged", {"token": "more", "roles": ["admin"], "queues": ["mail*"]}),
        ("tokenAdded", {"token": "new", "roles": ["work"], "queues": ["mail*"], "expires_at_ms": 9}),
        ("tokenChanged", {"token": "renewed", "roles": ["read"], "queues": ["mail*"], "new_secret": True}),
    ]
    assert {(entry.who, entry.queue, entry.outcome, entry.at_ms) for entry in found} == {
        ("tokens file", "", "ok", NOW_MS)
    }


def test_no_digest_of_a_token_is_in_an_entry() -> None:
    known = [token("a"), token("b")]
    for entry in (*token_entries([], known, NOW_MS), *token_entries(known, [], NOW_MS)):
        for each in known:
            assert each.digest not in repr(entry)
            assert each.digest[:14] not in entry.id


def test_equal_tokens_are_no_change() -> None:
    assert token_entries([token("a"), token("b")], [token("b"), token("a")], NOW_MS) == []


def test_a_long_list_of_patterns_is_cut() -> None:
    many = token("a")._replace(queues=tuple(f"q{number}" for number in range(10_000)))
    [entry] = token_entries([], [many], NOW_MS)
    assert len(entry.arguments) < 1_000


def test_two_processes_give_the_same_change_the_same_id_and_others_another() -> None:
    first, second = (token_entries([], [token("a"), token("b")], NOW_MS) for _ in range(2))
    assert [entry.id for entry in first] == [entry.id for entry in second]
    assert len({entry.id for entry in first}) == 2
    assert token_entries([token("a")], [], NOW_MS)[0].id not in {entry.id for entry in first}
    assert token_entries([], [token("a")], NOW_MS + 1)[0].id != first[0].id


def test_each_change_of_a_shard_is_an_entry() -> None:
    found = shard_entries(MapChange(["2"], ["3"], ["4"], ["5"], ["6"], {"7": "why"}, {"8": "why"}), NOW_MS)
    assert [(entry.operation, json.loads(entry.arguments)["shard"]) for entry in found] == [
        ("shardAdded", "2"),
        ("shardMoved", "3"),
        ("shardDraining", "4"),
        ("shardTakesEnqueues", "5"),
        ("shardRemoved", "6"),
    ]


def test_the_entry_of_a_removed_shard_says_whether_it_was_given_up_as_lost() -> None:
    drained, lost = shard_entries(MapChange(removed=["2", "3"], lost=["3"]), NOW_MS)
    assert json.loads(drained.arguments) == {"shard": "2"}
    assert json.loads(lost.arguments) == {"shard": "3", "lost": True}


def test_each_limit_that_came_changed_or_went_is_an_entry_of_its_queue() -> None:
    found = limit_entries({"gone": 1, "same": 2, "stopped": 3}, {"same": 2, "stopped": 0, "new": 0.5}, NOW_MS)
    assert [(entry.operation, entry.queue, json.loads(entry.arguments)) for entry in found] == [
        ("limitChanged", "gone", {"jobs_per_second": None, "before": 1}),
        ("limitChanged", "new", {"jobs_per_second": 0.5, "before": None}),
        ("limitChanged", "stopped", {"jobs_per_second": 0, "before": 3}),
    ]
    assert {entry.who for entry in found} == {"limits file"}


def test_queues_with_the_same_change_have_entries_of_different_ids() -> None:
    assert len({entry.id for entry in limit_entries({}, {"a": 1, "b": 1}, NOW_MS)}) == 2


def test_a_file_that_changes_many_limits_is_one_entry() -> None:
    [entry] = limit_entries({}, {f"q{number}": 1.0 for number in range(1_000)}, NOW_MS)
    assert (entry.operation, json.loads(entry.arguments)) == ("limitsChanged", {"queues": 1_000})


def test_another_number_of_servers_is_an_entry() -> None:
    [entry] = map(entry_for, server_set_changes(3, 2, NOW_MS))
    assert (entry.who, entry.operation, json.loads(entry.arguments)) == (
        "server set",
        "serverSetChanged",
        {"servers": 2, "before": 3},
    )
    assert server_set_changes(3, 3, NOW_MS) == server_set_changes(None, None, NOW_MS) == []


def test_the_time_of_a_change_is_that_of_its_file_unless_that_can_not_be(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    assert changed_ms(path, NOW_MS) == NOW_MS
    assert changed_ms(None, NOW_MS) == NOW_MS
    path.touch()
    for age_ms, expected in ((0, NOW_MS), (59_000, NOW_MS - 59_000), (3_600_000, NOW_MS), (-5_000, NOW_MS)):
        at_s = (NOW_MS - age_ms) / 1000
        os.utime(path, (at_s, at_s))
        assert changed_ms(path, NOW_MS) == expected


def test_a_change_by_a_command_names_its_user_and_machine() -> None:
    authors = {"new": FileAuthor("alice (via sudo)", "box"), "3": FileAuthor("bob (local)", "box-2")}
    added, removed = sorted(
        token_entries([token("old")], [token("new")], NOW_MS, authors), key=lambda entry: entry.operation
    )
    assert (added.who, added.address, added.source) == ("alice (via sudo)", "box", "tokens file")
    assert (removed.who, removed.address, removed.source) == ("tokens file", "", "")
    draining, gone = shard_entries(MapChange(draining=["3"], removed=["4"]), NOW_MS, authors)
    assert (draining.who, draining.address, draining.source) == ("bob (local)", "box-2", "shard file")
    assert (gone.who, gone.address, gone.source) == ("shard file", "", "")
    assert {entry.id for entry in token_entries([], [token("new")], NOW_MS)} == {
        entry.id for entry in token_entries([], [token("new")], NOW_MS, authors)
    }, "so that servers with and without the notes keep one entry"
