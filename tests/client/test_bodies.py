"""What isn't bytes is refused, by name, before anything is sent: `bytes(5)` would store five zero bytes, and `bytes([5])` a body of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater import AsyncEnqueueBatcher, EnqueueBatcher
from pinlater.client import Ack, AsyncClient, Checkpoint, Client, Job, UniqueKey, UniqueScope, errors
from pinlater.worker import Worker
from tests.client.fake_server import FakeServer
from tests.worker.report_shards import info

NO_BODIES: list[tuple[Any, str]] = [
    (5, "jobs[0] must be a Job or bytes, not int"),
    ([5], "jobs[0] must be a Job or bytes, not list"),
    ("text", "jobs[0] must be a Job or bytes, not str"),
    (None, "jobs[0] must be a Job or bytes, not NoneType"),
    (Job(5), "jobs[0].body must be bytes, not int"),  # type: ignore[arg-type]
    (Job([5]), "jobs[0].body must be bytes, not list"),  # type: ignore[arg-type]
    (Job("text"), "jobs[0].body must be bytes, not str"),  # type: ignore[arg-type]
]
NO_SERVER = "127.0.0.1:1"  # where no server listens: what would be sent fails with `ServerUnreachable`


def saying(message: str) -> str:
    return f"^{message.replace('[', chr(92) + '[').replace(']', chr(92) + ']').replace('.', chr(92) + '.')}$"


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(NO_SERVER, retries=0) as client:
        yield client


@pytest.mark.parametrize(("job", "message"), NO_BODIES)
async def test_an_enqueue_of_what_is_no_body_is_refused_by_name(client: Client, job: Any, message: str) -> None:
    async with AsyncClient(NO_SERVER) as asynchronous:
        with pytest.raises(TypeError, match=saying(message)):
            await asynchronous.enqueue("q", [job])
    with pytest.raises(TypeError, match=saying(message)):
        client.enqueue("q", [job])
    with pytest.raises(TypeError, match=saying(message.replace("jobs[0]", "jobs[2]"))):
        client.enqueue("q", [b"x", b"y", job])


@pytest.mark.parametrize("acks", [["q:s1:p1:1"], "q:s1:p1:1", Ack("q:s1:p1:1"), [None]])
def test_what_is_no_list_of_acks_is_refused(client: Client, acks: Any) -> None:
    with pytest.raises(TypeError, match=r"^acks must be a list of Ack, not of (str|NoneType): ack\(queue, \[Ack\("):
        client.ack("q", acks)


@pytest.mark.parametrize("jobs", [b"abc", "abc", bytearray(b"abc"), Job(b"abc")])
def test_one_job_where_a_list_of_jobs_belongs_is_refused(client: Client, jobs: Any) -> None:
    """Each of its parts would have been a job."""
    with pytest.raises(TypeError, match=f"^jobs must be a list of jobs, not one {type(jobs).__name__}: "):
        client.enqueue("q", jobs)


@pytest.mark.parametrize(("job", "message"), NO_BODIES)
async def test_the_batchers_refuse_it_when_it_is_handed_in_and_no_other_job_is_harmed(
    client: Client, job: Any, message: str
) -> None:
    said = saying(message.replace("jobs[0]", "job"))
    async with AsyncClient(NO_SERVER, retries=0) as asynchronous, AsyncEnqueueBatcher(asynchronous) as batcher:
        other = asyncio.ensure_future(batcher.enqueue("q", b"x"))
        with pytest.raises(TypeError, match=said):
            await batcher.enqueue("q", job)
        with pytest.raises(errors.ServerUnreachable):  # it was sent, but no server is there
            await other
    with EnqueueBatcher(client) as handed_in:
        first = handed_in.submit("q", b"x")
        for hand_in in (handed_in.submit, handed_in.enqueue):
            with pytest.raises(TypeError, match=said):
                hand_in("q", job)
        assert isinstance(first.exception(), errors.ServerUnreachable)


def test_a_checkpoint_of_what_is_no_body_is_refused_by_name(client: Client) -> None:
    items: Any = [Checkpoint("q:s1:p1:1"), Checkpoint("q:s1:p1:1", new_body=5)]  # type: ignore[arg-type]
    for checkpoint in (client.checkpoint, client.checkpoint_plain):
        with pytest.raises(TypeError, match=r"^items\[1\]\.new_body must be bytes, not int$"):
            checkpoint("q", items)


@pytest.mark.parametrize("body", [5, [5], "text", None])
def test_a_task_that_takes_bytes_takes_nothing_else(body: Any) -> None:
    worker = Worker(NO_SERVER)

    @worker.task("q")
    def store(data: bytes) -> None: ...

    with pytest.raises(TypeError, match="task store: argument 'data' must be bytes, not "):
        store.enqueue(body)
    alike: list[Any] = [b"x", bytearray(b"x"), memoryview(b"x")]
    assert [store.job(same).body for same in alike] == [b"x"] * 3


@pytest.mark.parametrize(("job", "message"), NO_BODIES)
async def test_many_jobs_of_a_task_are_jobs(job: Any, message: str) -> None:
    async with FakeServer(getServerInfo=info) as server, AsyncClient(server.address) as asynchronous:
        worker = Worker(asynchronous)

        @worker.task("q")
        def store(data: bytes) -> None: ...

        with pytest.raises(TypeError, match=saying(message.replace("a Job or bytes", "a Job"))):
            await store.enqueue_many_async([job])
        assert [method for method, _ in server.calls if method == "enqueueJobs"] == []


@pytest.mark.parametrize("method", ["cancel", "run_jobs", "change_priority", "delete_jobs_by_descriptor", "lookup"])
def test_one_descriptor_in_place_of_a_list_is_refused(client: Client, method: str) -> None:
    """Its letters would be taken for descriptors."""
    more = [1] if method == "change_priority" else []
    with pytest.raises(TypeError, match=saying("descriptors must be a list: write ['q:s1:p1:7']")):
        getattr(client, method)(*([] if method == "lookup" else ["q"]), "q:s1:p1:7", *more)


def test_a_unique_key_for_a_time_without_one_names_the_argument(client: Client) -> None:
    with pytest.raises(errors.InvalidArgument, match="scope TIME needs for_ms"):
        client.enqueue("q", [Job(b"x", unique=UniqueKey("k", UniqueScope.TIME))])
