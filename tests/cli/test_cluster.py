"""`cluster status` against a real server that has its store for itself, and against answers that contradict each other."""

from __future__ import annotations

import re

import pytest

from pinlater.cli.cluster_answers import (
    ServerAnswer,
    as_json,
    memories_of,
    partitions_of,
    problems,
    servers_of,
    shards_of,
)
from pinlater.cli.commands import cluster
from pinlater.client import ClusterServer, ClusterShard, ClusterStatus, PartitionNumber, ShardDetails, ShardMemory
from pinlater.domain.slices import SLICES, slice_of
from pinlater.version import __version__
from tests.cli.conftest import Pinlater
from tests.cli.table_samples import AnsweredCall


def test_a_server_on_its_own_file_owns_everything(pinlater: Pinlater) -> None:
    pinlater.ok("queue", "create", "emails")
    found = pinlater.ok("cluster", "status", "emails", "--json").json
    assert (found["agree"], found["problems"]) == (True, [])
    [server] = found["servers"]
    assert (server["asked"], server["owns"], server["heard"]) == ([pinlater.address], {"1": SLICES}, None)
    [shard] = found["shards"]
    assert shard["in_reach"]
    assert shard["owners"] == [server["address"]] * SLICES
    assert (shard["details"]["kind"], shard["details"]["takes_enqueues"]) == ("sqlite", True)
    assert server["facts"]["version"] == __version__
    assert found["queue"] == {"queue": "emails", "slice": slice_of("emails"), "owners": {"1": server["address"]}}
    [answer] = found["answers"]
    assert (answer["moves"], answer["answers_lost"], answer["incomplete"]) == (0, 0, False)


def test_the_tables_name_servers_shards_and_the_owner_of_the_queue(pinlater: Pinlater) -> None:
    pinlater.ok("queue", "create", "emails")
    lines = pinlater.ok("cluster", "status", "--queue", "emails").out.splitlines()
    address, asked, version, up, *others = lines[1].split("\t")
    assert lines[0] == "server\tasked as\tversion\tup\tconnections\towns\tmoves\theard\tforwarded\ttaken"
    assert (asked, version, others[1:]) == (pinlater.address, __version__, ["1=16", "0", "-", "0", "0"])
    assert re.fullmatch(r"\d+\w+( \d+\w+)?", up)
    assert int(others[0]) >= 1
    lines[7] = re.sub(r"\d+\t0$", "N\t0", lines[7])  # dequeues of other tests that memory has answered
    assert lines[2:] == [
        "",
        "shard\tin reach\tversion\tmoving\towners",
        f"1\tyes\t0\t0\t{address}=16",
        "",
        "shard\tremembered jobs\tsize\tclaims from memory\tstale claims",
        "1\t0\t0 B\tN\t0",
        "",
        "queue\tshard\tslice\towner",
        f"emails\t1\t{slice_of('emails')}\t{address}",
    ]


def test_while_a_server_does_not_answer_the_others_are_shown_and_the_exit_code_tells(pinlater: Pinlater) -> None:
    done = pinlater("cluster", "status", "--server", f"{pinlater.address},127.0.0.1:1")
    assert done.code == 3
    assert done.err.startswith("warning: 127.0.0.1:1 does not answer: ")
    assert "1=16" in done.out


def test_no_answer_at_all_is_an_error(offline: Pinlater) -> None:
    done = offline("cluster", "status", "--json")
    assert (done.code, done.out) == (3, "")
    assert "127.0.0.1:1" in done.err


ONE, TWO = "10.0.0.1:9011", "10.0.0.2:9011"


def answer(asked: str, own: str, other: str, *, owners: str, version: int = 1, heard: bool = True) -> ServerAnswer:
    """`owners`: a digit for each slice."""
    servers = [
        ClusterServer(own, "own", {"1": 0}, answers=True, heard=True, usable=True),
        ClusterServer(other, "other", {"1": 1}, False, heard, 90, True, 0, 3, 4),
    ]
    by_slice = [{"1": ONE, "2": TWO, "0": ""}[digit] for digit in owners]
    return ServerAnswer(asked, ClusterStatus(own, servers, [ClusterShard("1", True, version, by_slice, [])]))


def test_servers_that_know_the_same_agree() -> None:
    answers = [
        answer("a:9010", ONE, TWO, owners="1" * 12 + "2" * 4),
        answer("b:9010", TWO, ONE, owners="1" * 12 + "2" * 4),
    ]
    assert list(problems(answers)) == []
    assert [(server.address, server.asked, server.owns) for server in servers_of(answers)] == [
        (ONE, ["a:9010"], {"1": 12}),
        (TWO, ["b:9010"], {"1": 4}),
    ]
    assert {
        (server.heard, server.heard_ms, server.items_sent, server.items_taken) for server in servers_of(answers)
    } == {(True, 90, 3, 4)}


def test_of_two_numbers_of_partitions_the_one_that_was_chosen_last_is_shown() -> None:
    old, new, other = PartitionNumber(2, True, 1), PartitionNumber(4, True, 2), PartitionNumber(3, False)
    answers = [
        ServerAnswer("a:9010", ClusterStatus(ONE, [], [], partitions={"q": old, "p": other})),
        ServerAnswer("b:9010", ClusterStatus(TWO, [], [], partitions={"q": new})),
    ]
    assert partitions_of(answers) == partitions_of(answers[::-1]) == {"p": other, "q": new}
    assert as_json(answers, None)["partitions"] == {"p": other._asdict(), "q": new._asdict()}


def test_servers_that_know_different_owners_do_not_agree_and_the_newest_are_shown() -> None:
    answers = [answer("a:9010", ONE, TWO, owners="1" * 16), answer("b:9010", TWO, ONE, owners="2" * 16, version=2)]
    [problem] = problems(answers)
    assert problem == (
        "the servers do not agree on the owners of shard 1: a:9010 knows version 1, b:9010 knows version 2"
    )
    assert [shard.owners for shard in shards_of(answers)] == [[TWO] * 16]
    assert not as_json(answers, None)["agree"]


def test_a_server_that_another_one_does_not_hear_is_a_problem() -> None:
    answers = [
        answer("a:9010", ONE, TWO, owners="1" * 16, heard=False),
        answer("b:9010", TWO, ONE, owners="1" * 16),
    ]
    assert list(problems(answers)) == [f"a:9010 can't send calls to {TWO}"]
    assert [server.heard for server in servers_of(answers)] == [True, False]


def test_a_server_whose_coordinator_does_not_answer_is_a_problem() -> None:
    well = answer("a:9010", ONE, TWO, owners="1" * 16)
    assert not list(problems([well]))
    assert well.status is not None
    [problem] = problems(
        [well._replace(status=well.status._replace(coordinator_trouble="ZooKeeper is gone (since 9)"))]
    )
    assert problem == "a:9010 changes no owners: ZooKeeper is gone (since 9)"


def test_a_server_whose_address_only_one_server_has_learned_is_one_server() -> None:
    one, two, early = ClusterServer(ONE, "a-1", {"1": 0}), ClusterServer(TWO, "b-2", {"1": 1}), ClusterServer("", "b-2")
    answers = [
        ServerAnswer("a:9010", ClusterStatus(ONE, [one, early._replace(slots={"2": 5})], [])),
        ServerAnswer("b:9010", ClusterStatus(TWO, [two, one], [])),
    ]
    assert [(server.address, server.slots, server.asked) for server in servers_of(answers)] == [
        (ONE, {"1": 0}, ["a:9010"]),
        (TWO, {"1": 1, "2": 5}, ["b:9010"]),
    ]


def test_a_shard_that_one_server_lacks_is_a_problem() -> None:
    alone = answer("b:9010", TWO, ONE, owners="1" * 16)
    assert alone.status is not None
    answers = [answer("a:9010", ONE, TWO, owners="1" * 16), alone._replace(status=alone.status._replace(shards=[]))]
    assert list(problems(answers)) == ["b:9010 does not use shard 1"]


def test_servers_are_sorted_by_the_numbers_in_their_addresses() -> None:
    tenth = "10.0.0.10:9011"
    one = ServerAnswer("a:9010", ClusterStatus(tenth, [ClusterServer(tenth), ClusterServer(TWO)], []))
    assert [server.address for server in servers_of([one])] == [TWO, tenth]


def test_the_moves_are_those_that_each_server_has_seen() -> None:
    alone = answer("b:9010", TWO, ONE, owners="1" * 16)
    assert alone.status is not None
    told = ServerAnswer("b:9010", alone.status._replace(moves=7))
    assert [(server.address, server.moves) for server in servers_of([told])] == [(ONE, None), (TWO, 7)]


def remembering(asked: str, own: str, **memories: ShardMemory | None) -> ServerAnswer:
    shards = [
        ClusterShard(name[1:], True, 1, [], details=ShardDetails("mysql", "", True, 1, memory=memory))
        for name, memory in memories.items()
    ]
    return ServerAnswer(asked, ClusterStatus(own, [], shards))


def test_the_memories_of_all_servers_are_added_up_by_shard() -> None:
    one = remembering("a:9010", ONE, s1=ShardMemory(1, 20, 300, 4_000), s2=None)
    two = remembering("b:9010", TWO, s1=ShardMemory(2, 30, 400, 5_000), s2=ShardMemory(7, 8, 9, 10))
    found = memories_of([one, one._replace(asked="10.0.0.1:9010"), two, ServerAnswer("c:9010")])
    assert found == {"1": ShardMemory(3, 50, 700, 9_000), "2": ShardMemory(7, 8, 9, 10)}


def test_the_memory_of_due_jobs_is_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [remembering("a:9010", ONE, s1=ShardMemory(212, 2**20, 1_204_113, 2), s2=None)]
    cluster.status(AnsweredCall(given=answers))
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("shard\tremembered jobs\tsize\tclaims from memory\tstale claims") :] == [
        "shard\tremembered jobs\tsize\tclaims from memory\tstale claims",
        "1\t212\t1.0 MiB\t1204113\t2",
    ]


def test_two_addresses_of_one_server_count_it_once() -> None:
    answers = [answer(asked, ONE, TWO, owners="1" * 16) for asked in ("a:9010", "10.0.0.1:9010")]
    [one, two] = servers_of(answers)
    assert (one.asked, two.items_sent) == (["a:9010", "10.0.0.1:9010"], 3)
