"""What three servers of the same shards know of workers, put together by a client that names one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import Claim, Client, Job, WorkerInfo, WorkingProcess
from pinlater.testing.real_server import RealServer
from tests.shared_shards.serving import place_of, wait_until

PROCESS = WorkingProcess(7, WorkerInfo("python", "1.0", "host", 17, 16, 3, 1))
Servers = tuple[RealServer, ...]


@pytest.fixture
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Three servers on two Redis shards, which know each other."""
    place = place_of("redis", tmp_path, request)
    with ExitStack() as running:
        servers = tuple(
            running.enter_context(RealServer(tmp_path, *place.options, store=place.store)) for _ in range(3)
        )
        wait_until(lambda: all(knows_all(server) for server in servers))
        yield servers


def knows_all(server: RealServer) -> bool:
    with Client(server.address) as client:
        return len({answer.server_id for answer in client.workers(everywhere=True)}) == 3


def test_each_server_counts_the_dequeues_that_wait_at_all(three: Servers) -> None:
    with ExitStack() as running:
        polls = [running.enter_context(Client(server.address, follow_owners=False)) for server in (*three, three[0])]
        polls[0].create_queue("q")
        threads = running.enter_context(ThreadPoolExecutor(len(polls)))
        calls = [threads.submit(each.dequeue, "q", 1, wait_ms=60_000) for each in polls]
        wait_until(lambda: [waiting_at(server) for server in three] == [4, 4, 4])
        with Client(three[1].address, follow_owners=False) as client:
            client.enqueue("q", [b"x"] * 4)
        assert [len(call.result(60).jobs) for call in calls] == [1] * 4
        wait_until(lambda: [waiting_at(server) for server in three] == [0, 0, 0])


def waiting_at(server: RealServer) -> int:
    """How many dequeues wait, as this server says."""
    with Client(server.address, follow_owners=False) as client:
        [stats] = client.queue_stats("q")
        return stats.waiting_dequeues


def listed(*servers: RealServer) -> Any:
    addresses = ",".join(server.address for server in servers)
    command = [sys.executable, "-m", "pinlater", "worker", "list", "--json", "--server", addresses]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def test_a_worker_that_talks_to_several_servers_is_one_row_with_the_sums(three: Servers) -> None:
    """Named or not, all three servers are asked."""
    with Client(three[0].address, source="w", follow_owners=False) as client:
        client.create_queue("q")
        client.enqueue("q", [b"x"] * 4)
        held = list(client.dequeue("q", 1, process=PROCESS).jobs)
    for server in three[1:]:
        with Client(server.address, source="w", follow_owners=False) as client:
            held += client.dequeue("q", 1, process=PROCESS._replace(info=None)).jobs
            client.heartbeat("q", [Claim(job.descriptor, job.token) for job in held], process=PROCESS)
    for asked in (three, three[:1], three[1:2]):
        found = listed(*asked)
        [worker] = found["workers"]
        assert found["gaps"] == []
        assert (worker["handed_out"], worker["holds"]) == (3, {"q": 3})
        [process] = worker["processes"]
        assert (process["process"], process["version"]) == (7, "1.0")


def test_a_killed_server_is_a_gap_and_the_jobs_it_handed_out_are_still_shown(three: Servers) -> None:
    with Client(three[2].address, source="w", follow_owners=False) as client:
        client.create_queue("q")
        client.enqueue("q", [Job(b"x", claim_timeout_ms=600_000)])
        client.dequeue("q", 1, process=PROCESS)
    three[2].kill()
    found = listed(*three)
    assert found["incomplete"]
    assert any("does not answer" in gap for gap in found["gaps"])
    [worker] = found["workers"]
    assert (worker["holds"], worker["processes"], worker["trouble"]) == ({"q": 1}, [], "none")
