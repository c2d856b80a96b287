"""`pinlater serve` on MySQL and on Redis shards: started by a shard file or a URL, and changed while it runs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import pytest

from bench.servers import PinLaterServer
from pinlater.client import Ack, Client, Job, QueueConfig
from pinlater.testing.real_server import RealServer, ServerDidNotStart
from tests.shared_shards.serving import (
    ServedShards,
    everything_shown,
    metrics,
    place_of,
    shard_of,
    wait_until,
    work_off,
)


@pytest.fixture(params=["mysql", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> ServedShards:
    return place_of(request.param, tmp_path, request)


@pytest.fixture
def serve(tmp_path: Path, place: ServedShards) -> Iterator[Callable[..., RealServer]]:
    """Starts servers on the shard file; they end with the test."""
    with ExitStack() as running:

        def start(*options: str) -> RealServer:
            return running.enter_context(RealServer(tmp_path, *place.options, *options, store=place.store))

        yield start


def test_jobs_are_spread_over_the_shards_of_the_file_and_done(serve: Callable[..., RealServer]) -> None:
    """From create to ack, over Thrift."""
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        descriptors = [
            descriptor
            for number in range(40)
            for descriptor in client.enqueue("emails", [Job(b"%d" % number)]).descriptors
        ]
        assert {shard_of(descriptor) for descriptor in descriptors} == {"1", "2"}
        assert work_off(client, "emails") == {b"%d" % number for number in range(40)}
        assert {info.state.name for info in client.lookup(descriptors).values()} == {"SUCCEEDED"}


def test_a_server_on_one_shard_finds_what_another_one_left(tmp_path: Path, place: ServedShards) -> None:
    url, bodies = place.url(place.password), [b"%d \xff\x00" % number for number in range(30)]
    with RealServer(tmp_path, *place.options, store=url) as server, Client(server.address) as client:
        client.create_queue("emails")
        descriptors = client.enqueue("emails", [Job(body) for body in bodies]).descriptors
        assert {shard_of(descriptor) for descriptor in descriptors} == {"1"}
        first = client.dequeue("emails", limit=5).jobs
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in first])
        held = client.dequeue("emails", limit=5).jobs
    with RealServer(tmp_path, *place.options, store=url) as server, Client(server.address) as client:
        assert metrics(server, "pinlater_shard_healthy") == {"1": 1}
        [stats] = client.queue_stats("emails")
        assert [stats.total(name) for name in ("pending", "in_progress", "succeeded")] == [20, 5, 5]
        assert [stats.total(name) for name in ("enqueued_total", "claimed_total", "succeeded_total")] == [30, 10, 5]
        client.ack("emails", [Ack(job.descriptor, token=job.token) for job in held])
        rest = work_off(client, "emails")
        assert rest | {job.body for job in [*first, *held]} == set(bodies)
        assert {info.state.name for info in client.lookup(descriptors).values()} == {"SUCCEEDED"}


def test_a_shard_file_that_is_missing_is_said_at_the_start(tmp_path: Path, place: ServedShards) -> None:
    with pytest.raises(ServerDidNotStart, match=r"nowhere\.json can't be read: No such file or directory"):
        RealServer(tmp_path, store=f"{place.kind}:{tmp_path}/nowhere.json").start()


def test_a_reload_adds_a_shard_and_its_queues(serve: Callable[..., RealServer], place: ServedShards) -> None:
    """At SIGHUP at once, otherwise within ten seconds."""
    server = serve()
    with Client(server.address) as client:
        client.create_queue("emails")
        place.write({"1": {}, "2": {}, place.new_shard: {}})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1, place.new_shard: 1})
        client.configure_queue("emails", QueueConfig(partitions=3))
        shards = {shard_of(client.enqueue("emails", [Job(b"x")]).descriptors[0]) for _ in range(60)}
        assert shards == {"1", "2", place.new_shard}


def test_an_ack_reaches_a_new_shard_through_a_server_that_has_not_read_the_file_again(
    serve: Callable[..., RealServer], place: ServedShards
) -> None:
    """It reads the file when it is asked about the job, and takes the shard into use."""
    seldom = ("--set", "maintenance.file_interval_ms=600000")
    first, second = serve(*seldom), serve(*seldom)
    with Client(first.address) as ahead, Client(second.address) as behind:
        ahead.create_queue("emails")
        place.write({"1": {}, "2": {}, place.new_shard: {}})
        first.reload()
        wait_until(lambda: metrics(first, "pinlater_shard_healthy") == {"1": 1, "2": 1, place.new_shard: 1})
        assert place.new_shard not in metrics(second, "pinlater_shard_healthy")
        ahead.configure_queue("emails", QueueConfig(partitions=3))
        for _ in range(60):
            ahead.enqueue("emails", [Job(b"x")])
        claimed = ahead.dequeue("emails", limit=60).jobs
        assert place.new_shard in {shard_of(job.descriptor) for job in claimed}
        behind.ack("emails", [Ack(job.descriptor, token=job.token) for job in claimed])
        assert {info.state.name for info in ahead.lookup([job.descriptor for job in claimed]).values()} == {"SUCCEEDED"}
        assert place.new_shard in metrics(second, "pinlater_shard_healthy")


def test_a_shard_that_only_dequeues_drains_and_then_goes(serve: Callable[..., RealServer], place: ServedShards) -> None:
    """Its old jobs are handed out. Removed from the file too early it stays, with an error and their number, until it is empty."""
    often = [("--set", f"maintenance.{each}_interval_ms=100") for each in ("refresh", "sample")]
    server = serve("--set", "sharding.removal_grace_ms=1", *often[0], *often[1])
    with Client(server.address) as client:
        client.create_queue("emails")
        client.configure_queue("emails", QueueConfig(partitions=2))
        for number in range(30):
            client.enqueue("emails", [Job(b"%d" % number)])
        place.write({"1": {}, "2": {"dequeueOnly": True}})
        server.reload()
        wait_until(lambda: metrics(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 0})
        later = {shard_of(client.enqueue("emails", [Job(b"later")]).descriptors[0]) for _ in range(30)}
        assert later == {"1"}
        wait_until(lambda: sum(metrics(server, "pinlater_shard_jobs_live").values()) == 60)
        left = metrics(server, "pinlater_shard_jobs_live")["2"]
        place.write({"1": {}})
        server.reload()
        wait_until(lambda: any('"error"' in line and f"{left:.0f} live jobs" in line for line in server.said))
        assert metrics(server, "pinlater_shard_takes_enqueues") == {"1": 1, "2": 0}
        assert work_off(client, "emails") == {b"%d" % number for number in range(30)} | {b"later"}
        wait_until(lambda: metrics(server, "pinlater_shard_healthy") == {"1": 1})


def test_a_shard_moves_while_requests_go_on(serve: Callable[..., RealServer], place: ServedShards) -> None:
    """A failover by another address in the file."""
    server = serve()
    ended = threading.Event()
    enqueued: list[bytes] = []
    with Client(server.address) as client:
        client.create_queue("emails")

        def enqueue_on() -> None:
            while not ended.is_set():
                body = b"%d" % len(enqueued)
                client.enqueue("emails", [Job(body)])
                enqueued.append(body)

        with ThreadPoolExecutor(1) as thread, ExitStack() as at_the_end:
            load = thread.submit(enqueue_on)
            at_the_end.callback(ended.set)
            wait_until(lambda: len(enqueued) > 20)
            place.write({"1": {}, "2": place.elsewhere()})
            server.reload()
            wait_until(lambda: any('"moved"' in line for line in server.said))
            far = len(enqueued) + 20
            wait_until(lambda: len(enqueued) > far)
            ended.set()
            load.result()
        assert work_off(client, "emails") == set(enqueued)


def test_a_wrong_password_is_said_at_the_start(tmp_path: Path, place: ServedShards) -> None:
    """With the place and the user's name, and never with the password."""
    with pytest.raises(ServerDidNotStart) as caught:
        RealServer(tmp_path, store=place.url("secret-word")).start()
    text = str(caught.value)
    assert f"{place.address} refuses our login ({place.access_denied}" in text
    assert "secret-word" not in text


def test_a_broken_shard_file_keeps_the_map_in_use(serve: Callable[..., RealServer], place: ServedShards) -> None:
    server = serve()
    good = place.path.read_text()
    place.path.write_text(place.broken_file)
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 1})
    assert metrics(server, "pinlater_shard_healthy") == {"1": 1, "2": 1}
    place.path.write_text(good)
    server.reload()
    wait_until(lambda: metrics(server, "pinlater_file_broken") == {"store": 0})


def test_a_password_is_nowhere_to_be_seen(tmp_path: Path, place: ServedShards) -> None:
    """Not in the log, on no page, and not in the list of processes, though it was on the command line."""
    options = (*place.options, "--set", "telemetry.log_level=debug")
    with RealServer(tmp_path, *options, store=place.url(place.password)) as server:
        with Client(server.address) as client:
            client.create_queue("emails")
        shown = everything_shown(server)
    assert place.address in shown
    assert quote(place.password, safe="") not in shown
    assert place.password not in shown


@pytest.mark.parametrize("by", ["flag", "file"])
def test_the_originals_settings_start_a_server_on_its_shards(by: str, tmp_path: Path, place: ServedShards) -> None:
    """Its two files as they are. The shard file is named as the JVM's flag named it, or in the settings."""
    settings = tmp_path / "pinlater.properties"
    named = f"SHARDS_FILE={place.path.name}\n" if by == "file" else ""
    settings.write_text(f"{place.originals()}{named}")
    flags = ["--shards", str(place.path)] if by == "flag" else []
    command = [sys.executable, "-m", "pinlater", "serve", "--config", str(settings), *flags]
    with PinLaterServer(command, log=tmp_path / "log") as server, Client(f"127.0.0.1:{server.port}") as client:
        client.create_queue("emails")
        client.enqueue("emails", [Job(b"x")])
        assert work_off(client, "emails") == {b"x"}
        assert f'pinlater_shard_healthy{{shard="{place.last_shard}"}} 1' in server.get("/metrics")
        assert server.stop() == 0
