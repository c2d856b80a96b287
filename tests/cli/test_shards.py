"""`pinlater shards` and `pinlater server migrate` on MySQL and Redis shards, with and without a server beside them."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pinlater.cli import exits
from pinlater.cli.shard_queries import look_at
from pinlater.cli.shard_standstill import STANDS_STILL_S, DrainStandstill, why_jobs_remain
from pinlater.client import Ack, AuditEntry, Client, Job, QueueConfig, UniqueKey, UniqueScope
from pinlater.client.errors import PinLaterError
from pinlater.domain.clock import ManualClock
from pinlater.domain.rendezvous import rendezvous_home
from pinlater.testing.real_server import RealServer
from tests.cli.conftest import Done, Pinlater
from tests.databases.ports import free_port
from tests.databases.redis import RedisServer
from tests.databases.redis_users import PASSWORD, as_admin, url_of
from tests.shared_shards.serving import ServedShards

ON_MYSQL = pytest.mark.parametrize("place", ["mysql"], indirect=True)


def unreachable_shard() -> dict[str, object]:
    """Fields of a shard whose port is closed."""
    return {"master": {"host": "127.0.0.1", "port": free_port()}}


def grown_old(place: ServedShards) -> None:
    """As if the file had been changed a minute ago: every server has seen it since."""
    changed_s = place.path.stat().st_mtime - 60
    os.utime(place.path, (changed_s, changed_s))


def test_migrate_makes_every_shard_and_the_second_time_nothing(offline: Pinlater, place: ServedShards) -> None:
    first = offline.ok("server", "migrate", "--shards", str(place.path), "--json").json
    assert [(shard["name"], shard["schema_before"]) for shard in first["shards"]] == [("1", 0), ("2", 0)]
    newest = first["shards"][0]["schema_after"]
    assert newest > 0
    assert first["shards"][1]["address"].endswith(f"/{place.prefix}_2" if place.kind == "mysql" else "/0")
    lines = offline.ok("server", "migrate", "--store", place.store).out.splitlines()
    assert len(lines) == 2
    assert all(line.endswith(f": schema {newest}, nothing to do") for line in lines)


def test_a_newer_schema_is_refused_by_migrate_with_both_numbers(
    offline: Pinlater, redis_with_users: RedisServer, redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINLATER_REDIS_KEY_PREFIX", redis_prefix)
    with as_admin(redis_with_users) as admin:
        admin.hset(f"{redis_prefix}{{1}}:meta", "schema", 7)
    done = offline("server", "migrate", "--store", url_of(redis_with_users))
    assert done.code == exits.REFUSED
    assert "has schema 7; this version of pinlater is written for schema 3 and runs on 3 and 4" in done.err
    assert PASSWORD not in done.out + done.err


def test_a_taken_port_for_other_servers_is_named_with_its_setting(offline: Pinlater, place: ServedShards) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        command = ("serve", "--store", place.store, "--thrift-port", "0", "--http-port", "0")
        done = offline(*command, "--set", f"peer_port={port}")
    assert done.code == exits.REFUSED
    assert done.err.splitlines()[-1] == (
        f"error: The listener for other servers can't listen on 127.0.0.1 port {port}: address already in use "
        "(the setting peer_port chooses another port, as does --set peer_port=PORT)"
    )


def test_migrate_says_which_shard_it_could_not_reach_and_does_the_others(
    offline: Pinlater, place: ServedShards
) -> None:
    place.write({"1": {}, "2": unreachable_shard()})
    done = offline("server", "migrate", "--shards", str(place.path), "--json")
    assert done.code == exits.BUSY
    assert [shard["name"] for shard in done.json["shards"]] == ["1"]
    error = json.loads(done.err)["error"]
    assert error.startswith("shard 2: ")
    assert "127.0.0.1:" in error


def test_list_shows_what_the_file_says(shards: Callable[..., Done], place: ServedShards) -> None:
    place.write({"1": {}, "12": {"dequeueOnly": True}})
    done = shards("list", "--json")
    assert [(shard["name"], shard["key"], shard["dequeue_only"]) for shard in done.json["shards"]] == [
        ("1", place.key("1"), False),
        ("12", place.key("12"), True),
    ]
    assert place.server.address in done.out
    table = shards("list").out
    assert table.splitlines()[0] == "shard\tkey\taddress\tdequeue only"
    assert place.password not in done.out + table


def test_status_asks_databases_and_the_server(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards
) -> None:
    """Each database's own report, and the server's view of it."""
    before = shards("status", "--json")
    assert (before.code, [shard["schema"] for shard in before.json["shards"]]) == (0, [0, 0])
    assert [shard["used_bytes"] for shard in before.json["shards"]] == [None, None]
    assert [shard["in_use"] for shard in before.json["shards"]] == [None, None]
    with Client(serve().address) as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        descriptors = [client.enqueue("emails", [Job(b"x")]).descriptors[0] for _ in range(20)]
        job = client.dequeue("emails").jobs[0]
        client.ack("emails", [Ack(job.descriptor, token=job.token)])
        found = shards("status", "--json").json["shards"]
    assert all(shard["reachable"] and shard["in_use"] and shard["schema"] for shard in found)
    assert [len(shard["servers"]) for shard in found] == [1, 1]
    assert (sum(shard["live"] for shard in found), sum(shard["finished"] for shard in found)) == (19, 1)
    on_first = sum(":s1:" in descriptor for descriptor in descriptors)
    assert found[0]["live"] + found[0]["finished"] == on_first
    assert all(shard["used_bytes"] > 0 for shard in found)


def test_status_names_the_promise_that_a_database_does_not_keep(
    shards: Callable[..., Done], offline: Pinlater, place: ServedShards
) -> None:
    """As a server says it at its start: here the database flushes nothing, or Redis has no log."""
    assert offline("server", "migrate", "--shards", str(place.path)).code == 0
    expected = {"mysql": "innodb_flush_log_at_trx_commit is not 1", "redis": "appendonly is off"}[place.kind]
    assert f"shard 2: {expected}: what was answered" in shards("status").err
    for shard in shards("status", "--json").json["shards"]:
        assert any(warning.startswith(expected) for warning in shard["warnings"])


@ON_MYSQL
def test_status_tells_where_a_database_takes_shorter_bodies_than_the_settings_say(
    shards: Callable[..., Done], offline: Pinlater, place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB takes packets of 16 MiB; a body may take two bytes for one."""
    assert offline("server", "migrate", "--shards", str(place.path)).code == 0
    monkeypatch.setenv("PINLATER_JOBS_MAX_BODY_BYTES", str(9 * 2**20))
    done = shards("status")
    assert done.code == 0
    most = shards("status", "--json").json["shards"][0]["body_bytes_max"]
    assert 7 * 2**20 < most < 8 * 2**20
    assert f"shard 1: its max_allowed_packet holds bodies of {most} bytes" in done.err
    monkeypatch.setenv("PINLATER_JOBS_MAX_BODY_BYTES", str(most))
    assert "max_allowed_packet" not in shards("status").err


def test_status_fails_if_a_shard_is_unreachable(shards: Callable[..., Done], place: ServedShards) -> None:
    """The other shards are shown all the same."""
    place.write({"1": {}, "2": unreachable_shard()})
    done = shards("status")
    assert done.code == exits.BUSY
    assert "\nshard 2: " in done.err
    assert [line.split("\t")[2] for line in done.out.splitlines()[1:]] == ["yes", "no"]


def test_a_shard_is_drained_and_removed(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards
) -> None:
    """Refused with the count while it holds live jobs; the file's other signs stay as they were."""
    content = json.loads(place.path.read_text())
    place.path.write_text(json.dumps(content, indent=3))
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        for _ in range(20):
            client.enqueue("emails", [Job(b"x")])
        drained = shards("drain", place.key("2"), "--no-wait", "--json").json
        assert shards("drain", "s2", "--no-wait", "--json").json["shards"] == ["2"]
        assert (drained["shards"], drained["dequeue_only"]) == (["2"], True)
        assert drained["live"][0] > 0
        said = shards("drain", "2", "--no-wait").out
        assert said == f"2 drains; 2: {drained['live'][0]} live jobs left (emails {drained['live'][0]})\n"
        place.entry(content, "2")["dequeueOnly"] = True
        assert place.path.read_text() == json.dumps(content, indent=3)
        early = shards("remove", "2")
        assert (early.code, "servers may not know it yet" in early.err) == (exits.BUSY, True)
        grown_old(place)
        refused = shards("remove", "2")
        assert refused.code == exits.BUSY
        assert refused.err == f"error: 2 still holds {drained['live'][0]} live jobs, and stays in the file\n"
        while jobs := client.dequeue("emails", limit=100).jobs:
            client.ack("emails", [Ack(job.descriptor, token=job.token) for job in jobs])
    waited = shards("drain", "2")
    assert waited.out.splitlines() == ["2: 0 live jobs left", "2 is empty; `pinlater shards remove 2` removes it"]
    assert waited.err == (
        "the file is changed; waiting until no live jobs are left. "
        "Ctrl-C ends only the display; with `--no-wait` there is no waiting\n"
    )
    removed = shards("remove", "2", "--json")
    assert removed.json == {"removed": ["2"], "finished": drained["live"][0], "keys_lost": 0}
    assert [shard["name"] for shard in shards("list", "--json").json["shards"]] == ["1"]
    assert place.path.stat().st_mode & 0o777 == 0o600


def press_ctrl_c_after_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends a drain that waits, when it has looked at the shard three times."""
    looks = iter(range(3))

    async def look_until_ctrl_c(*asked: Any) -> Any:
        if next(looks, None) is None:
            raise KeyboardInterrupt
        return await look_at(*asked)

    monkeypatch.setattr("pinlater.cli.commands.shards.look_at", look_until_ctrl_c)


def test_a_drain_of_an_unreachable_shard_says_once_what_it_waits_for(
    shards: Callable[..., Done], place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard may answer never, and the file is changed already: the operator may leave."""
    place.write({"1": {}, "2": unreachable_shard()})
    press_ctrl_c_after_looks(monkeypatch)
    done = shards("drain", "2", "--anyway")
    assert done.out == "2: unreachable\n"
    assert done.err.splitlines()[0] == (
        "the file is changed; waiting until shard 2 answers and has no live jobs. "
        "Ctrl-C ends only the display; with `--no-wait` there is no waiting"
    )
    assert done.err.count("the file is changed") == 1
    assert place.entry(json.loads(place.path.read_text()), "2")["dequeueOnly"] is True


def test_a_shard_that_does_not_answer_is_not_drained_by_mistake(
    shards: Callable[..., Done], place: ServedShards
) -> None:
    """`remove` must not advise it either: after a change of the shards, all unique keys are refused instead of those of the shard."""
    place.write({"1": {}, "2": unreachable_shard()})
    before = place.path.read_bytes()
    for command, problem in (("remove", "can't be asked whether it is empty"), ("drain", "does not answer")):
        done = shards(command, place.key("2"), *(["--no-wait"] if command == "drain" else []))
        assert done.code == exits.BUSY
        assert done.err.startswith(f"error: 2 {problem}: ")
        assert ".." not in done.err
        assert "shards drain" not in done.err
        for advice in (
            "Do not drain it: ",
            "If its data may come back, wait until it answers.",
            f"`pinlater shards remove {place.key('2')} --lost` gives it up, with all its jobs",
            '"A shard whose data are lost for good" in docs/how-to/operate-mysql.md',
        ):
            assert advice in done.err
        assert ("--anyway drains it" in done.err) is (command == "drain")
        assert place.path.read_bytes() == before
    assert shards("drain", "2", "--no-wait", "--anyway").out == "2 drains; 2: unreachable\n"
    assert place.entry(json.loads(place.path.read_text()), "2")["dequeueOnly"] is True
    assert shards("drain", "2", "--no-wait").code == 0, "it drains already"
    assert "Do not drain it" not in shards("remove", "2").err
    assert shards("drain", "2", "--undo").code == 0


def test_a_lost_shard_is_shown_and_is_no_fault_of_the_others(
    shards: Callable[..., Done], offline: Pinlater, place: ServedShards
) -> None:
    assert offline("server", "migrate", "--shards", str(place.path)).code == 0
    place.write({"1": {}, "2": {**unreachable_shard(), "lostForGood": True}})
    assert [line.split("\t")[::3] for line in shards("list").out.splitlines()[1:]] == [["1", "no"], ["2", "lost"]]
    assert [(one["name"], one["lost"]) for one in shards("list", "--json").json["shards"]] == [
        ("1", False),
        ("2", True),
    ]
    done = shards("status")
    assert done.code == 0
    assert [line.split("\t")[2] for line in done.out.splitlines()[1:]] == ["yes", "lost"]
    assert "shard 2: it is marked as lost (lostForGood)" in done.err
    found = shards("status", "--json").json["shards"]
    assert [(one["lost"], one["reachable"], one["error"]) for one in found] == [(False, True, None), (True, None, None)]


def on_second(client: Client, queue: str, job: Job) -> str:
    """Enqueues the job until the second shard has it; its descriptor there."""
    while ":s2:" not in (descriptor := client.enqueue(queue, [job]).descriptors[0]):
        pass
    return descriptor


def test_a_drain_that_stands_still_names_jobs_with_the_reasons_why_they_remain(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind one, before a second one of a kind: the operator must see all that there is to do."""
    with Client(serve().address, source="w7") as client:
        for queue in ("emails", "held"):
            client.create_queue(queue)
            client.configure_queue(queue, QueueConfig(partitions=2))
        running = on_second(client, "emails", Job(b"x"))
        claimed: set[str] = set()
        while running not in claimed:
            claimed |= {job.descriptor for job in client.dequeue("emails", limit=100).jobs}
        hour_ms = 3_600_000
        on_second(client, "emails", Job(b"x", run_after_ms=round(time.time() * 1000) + hour_ms))
        later = on_second(client, "emails", Job(b"x", run_after_ms=round(time.time() * 1000) + 2 * hour_ms))
        held = on_second(client, "held", Job(b"x"))
        client.pause_queue("held")
    press_ctrl_c_after_looks(monkeypatch)
    monkeypatch.setattr("pinlater.cli.shard_standstill.STANDS_STILL_S", 0.0)
    count, head, first, second, third, hint = shards("drain", "2").out.splitlines()
    assert (count, head) == (
        "2: 4 live jobs left (emails 3, held 1)",
        "The number has not changed for 0 s. Jobs that remain, and why:",
    )
    assert first.startswith(f"- {running}: w7 has claimed it until 20")
    assert second.startswith(f"- {later}: It is not due until 20")
    assert third.startswith(f"- {held}: The queue is paused by w7, since 20")
    assert hint.startswith("`pinlater job list --shard 2` lists")


def test_a_drain_that_stands_still_at_due_jobs_says_that_no_worker_takes_them(
    shards: Callable[..., Done], serve: Callable[[], RealServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(serve().address) as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        descriptor = on_second(client, "emails", Job(b"x"))
    monkeypatch.setattr("pinlater.cli.commands.shards.why_jobs_remain", told_then_ctrl_c := ToldThenCtrlC())
    monkeypatch.setattr("pinlater.cli.shard_standstill.STANDS_STILL_S", 0.0)
    shards("drain", "2")
    assert told_then_ctrl_c.lines[1] == (
        f"- {descriptor}: It is due, and no worker has taken it yet (`pinlater job explain {descriptor}` tells more)."
    )


class ToldThenCtrlC:
    """Keeps what an operator is told, who then ends the command."""

    lines: Sequence[str] = ()

    async def __call__(self, *asked: Any) -> Sequence[str]:
        self.lines = await why_jobs_remain(*asked)
        raise KeyboardInterrupt


def test_a_standstill_is_told_once_and_again_after_a_change() -> None:
    clock = ManualClock()
    standstill = DrainStandstill(clock)
    told = []
    for seen in ("7 left", "7 left", "7 left", "6 left", "6 left", "6 left"):
        told.append(standstill.begins(seen))
        clock.advance(seconds=STANDS_STILL_S)
    assert told == [False, True, False, False, True, False]


def audited(client: Client, operation: str) -> AuditEntry:
    """The entry of that operation, once it is there."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        if found := client.audit(operation=operation).entries:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(operation)


def test_the_audit_names_the_users_who_drained_and_removed_a_shard(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINLATER_SHARDING_REMOVAL_GRACE_MS", "1000")
    with Client(serve().address) as client:
        monkeypatch.setenv("SUDO_USER", "alice")
        shards("drain", "2", "--no-wait")
        drained = audited(client, "shardDraining")
        assert (drained.who, drained.address) == ("alice (via sudo)", socket.gethostname())
        assert (drained.source, drained.shown_arguments()["shard"]) == ("shard file", '"2"')
        grown_old(place)
        monkeypatch.setenv("SUDO_USER", "bob")
        assert shards("remove", "2").code == 0
        assert audited(client, "shardRemoved").who == "bob (via sudo)"


def test_a_shard_with_unique_keys_for_a_time_is_removed_only_where_the_operator_gives_them_up(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards
) -> None:
    """Without the keys their jobs are taken as new. They are deleted on the shard, so that running servers let it go."""
    queue = next(queue for n in range(100) if rendezvous_home(queue := f"emails{n}", ["1", "2"]) == "2")
    keyed = [Job(b"x", unique=UniqueKey(f"k{n}", UniqueScope.TIME, 3_600_000)) for n in range(20)]
    with Client(serve().address) as client:
        client.create_queue(queue)
        assert all(":s2:" in descriptor for descriptor in client.enqueue(queue, keyed).descriptors)
        shards("drain", "2", "--no-wait")
        while jobs := client.dequeue(queue, limit=100).jobs:
            client.ack(queue, [Ack(job.descriptor, token=job.token) for job in jobs])
    grown_old(place)
    [_, second] = shards("status", "--json").json["shards"]
    assert (second["live"], second["timed_keys"]) == (0, 20)
    assert 3_500_000 < second["timed_keys_until_ms"] - time.time() * 1000 < 3_700_000
    assert "shard 2: it holds 20 unique keys for a time, the last until 2" in shards("status").err
    refused = shards("remove", "2")
    assert refused.code == exits.BUSY
    assert "2 still holds 20 unique keys for a time" in refused.err
    assert "--lose-keys" in refused.err
    assert [shard["timed_keys"] for shard in shards("status", "--json").json["shards"]] == [0, 20]
    removed = shards("remove", "2", "--lose-keys", "--json")
    assert (removed.json["removed"], removed.json["keys_lost"]) == (["2"], 20)
    assert [shard["timed_keys"] for shard in shards("status", "--json").json["shards"]] == [0]


@pytest.mark.parametrize("place", ["redis"], indirect=True)
def test_a_change_of_a_queue_says_that_an_unreachable_shard_gets_it_later(
    offline: Pinlater, serve: Callable[[], RealServer], place: ServedShards
) -> None:
    """Else an operator who looks at that shard, or at a worker that was handed its job, has no hint."""
    place.write({"1": {}, "2": unreachable_shard()})
    address = serve().address
    note = "note: a shard is unreachable (/readyz of the server names it); it gets the change when it is back\n"
    for words in (("create", "emails"), ("pause", "emails"), ("config", "emails", "--max-backlog", "9")):
        done = offline("queue", *words, "--server", address)
        assert (done.code, done.err) == (0, note)
    assert offline("queue", "config", "emails", "--server", address).err == ""


def test_a_shard_whose_data_are_lost_is_given_up_while_servers_run(
    shards: Callable[..., Done], serve: Callable[[], RealServer], place: ServedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the servers refuse the unique keys of the shard; afterwards other shards take them. Its name stays in the file."""
    place.write({"1": {}, "2": unreachable_shard()})
    place.write({"1": {}, "2": {**unreachable_shard(), "dequeueOnly": True}})
    grown_old(place)
    refused = shards("remove", "2")
    assert refused.code == exits.BUSY
    assert "`pinlater shards remove 2 --lost` gives it up" in refused.err
    assert '"A shard whose data are lost for good" in docs/how-to/operate-mysql.md' in refused.err
    with Client(serve().address) as client:
        client.create_queue("emails")
        with pytest.raises(PinLaterError, match="it is unknown whether the unique key 'k' is taken there"):
            client.enqueue("emails", [Job(b"x", unique=UniqueKey("k"))])
        monkeypatch.setenv("SUDO_USER", "carol")
        done = shards("remove", "2", "--lost")
        assert done.out.startswith("2 is marked as lost: servers give it up, with all its jobs, within ")
        assert place.entry(json.loads(place.path.read_text()), "2")["lostForGood"] is True
        entry = audited(client, "shardRemoved")
        assert (entry.who, entry.shown_arguments()) == ("carol (via sudo)", {"shard": '"2"', "lost": "true"})
        assert client.enqueue("emails", [Job(b"x", unique=UniqueKey("k"))]).descriptors[0].startswith("emails:s1:")
    assert [shard["lost"] for shard in shards("list", "--json").json["shards"]] == [False, True]
    gone = shards("drain", "2")
    assert (gone.code, "2 is marked as lost" in gone.err) == (exits.REFUSED, True)


def test_only_a_shard_that_does_not_answer_can_be_lost(
    offline: Pinlater, shards: Callable[..., Done], place: ServedShards
) -> None:
    assert offline("server", "migrate", "--shards", str(place.path)).code == 0
    before = place.path.read_bytes()
    done = shards("remove", "2", "--lost")
    assert (done.code, "2 answers, so its data are not lost" in done.err) == (exits.REFUSED, True)
    assert place.path.read_bytes() == before
    place.write({"1": unreachable_shard(), "2": {"dequeueOnly": True}})
    done = shards("remove", "1", "--lost")
    assert done.err == "error: 1 can't be given up: no other shard takes enqueues; add one first\n"
    assert done.code == exits.REFUSED


def test_a_shard_with_an_empty_database_in_place_of_its_own_can_be_lost(
    shards: Callable[..., Done], place: ServedShards
) -> None:
    done = shards("remove", "2", "--lost", "--json")
    assert done.json == {"removed": ["2"], "lost": True}


@ON_MYSQL
def test_draining_can_be_undone(shards: Callable[..., Done], place: ServedShards) -> None:
    shards("drain", "2", "--no-wait")
    assert shards("list").out.splitlines()[2].endswith("\tyes")
    assert shards("drain", "2", "--undo").code == 0
    assert shards("list").out.splitlines()[2].endswith("\tno")


@ON_MYSQL
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("drain", "3"), "there is no shard 3, only 1, 1d1, 2, 2d1 (s1 in a descriptor is shard 1)"),
        (("drain", "2d1"), "2d1 is one of the databases of pinlaterdb002, which drain together: name 2"),
        (("remove", "1"), "1 takes enqueues: `pinlater shards drain 1` first"),
    ],
)
def test_an_impossible_change_of_the_shard_file_is_refused(
    arguments: tuple[str, ...],
    complaint: str,
    shards: Callable[..., Done],
    place: ServedShards,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PINLATER_MYSQL_DATABASES_PER_SERVER", "2")
    before = place.path.read_bytes()
    done = shards(*arguments)
    assert (done.code, done.err) == (exits.REFUSED, f"error: {complaint}\n")
    assert place.path.read_bytes() == before


@ON_MYSQL
def test_the_last_shard_that_takes_enqueues_does_not_drain(shards: Callable[..., Done], place: ServedShards) -> None:
    place.write({"1": {}, "2": {"dequeueOnly": True}})
    done = shards("drain", "1")
    assert (done.code, done.err) == (exits.REFUSED, "error: 1 can't drain: no other shard takes enqueues\n")


@pytest.mark.parametrize(
    ("store", "complaint"),
    [
        ("sqlite:jobs.db", "is no MySQL or Redis store, and has but one shard"),
        ("mysql://pinlater:secret@127.0.0.1:1/pinlater_1", "only a shard file has several to choose from"),
    ],
)
def test_other_stores_have_nothing_to_drain(store: str, complaint: str, offline: Pinlater) -> None:
    done = offline("shards", "drain", "1", "--store", store)
    assert done.code == exits.REFUSED
    assert complaint in done.err
    assert "secret" not in done.err + done.out


@ON_MYSQL
def test_backup_leaves_mysql_to_its_own_tools(offline: Pinlater, place: ServedShards, tmp_path: Path) -> None:
    done = offline("server", "backup", "--store", place.store, str(tmp_path / "copy"))
    assert done.code == exits.REFUSED
    assert "its databases have tools of their own" in done.err
