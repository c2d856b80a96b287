"""The search over all jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pinlater.client import Ack, AsyncClient, Job, JobState, UniqueKey
from pinlater.client.errors import PinLaterError, UnknownMethod, error_for
from pinlater.client.values import Scanned
from pinlater.console.job_search import JobSearch, SearchBounds, SearchResult
from pinlater.domain.clock import ManualClock
from pinlater.domain.durations import YEAR_MS
from pinlater.server.main.core import Core
from tests.console.caller import Caller

SEARCH = "/v1/search"


class _Wrapped:
    """A client with other answers to some calls."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
async def queues(client: AsyncClient) -> None:
    await client.create_queue("orders")


async def put(client: AsyncClient, queue: str = "mail", **given: object) -> str:
    return (await client.enqueue(queue, [Job(**{"body": b"x", **given})])).descriptors[0]  # type: ignore[arg-type]


def named(found: SearchResult) -> dict[str, str]:
    return {one.job.descriptor: one.where for one in found.jobs}


async def search(client: AsyncClient, text: str, *, queue: str = "", **bounds: float) -> SearchResult:
    wanted = SearchBounds(**bounds)  # type: ignore[arg-type]
    return await JobSearch(client, text, queue, lambda: 0.0, wanted).run()


@pytest.mark.usefixtures("queues")
async def test_a_text_is_found_wherever_it_is_in_all_queues_and_states(caller: Caller, client: AsyncClient) -> None:
    by_key = await put(client, "orders", unique=UniqueKey("Order-7"))
    by_header = await put(client, headers={"tenant": "about order-7"}, priority=3)
    later = await put(client, body=b"<order-7>", run_after_ms=ManualClock().now_ms() + YEAR_MS)
    await put(client, "orders", body=b"order-8")
    failed = await put(client, "orders", body=b"x", priority=2)
    [first, second] = (await client.dequeue("orders", 2)).jobs
    assert (await client.dequeue("orders", 1)).jobs[0].descriptor == failed
    await client.ack("orders", [Ack(failed, succeeded=False, final=True, error_text="ORDER-7 is lost")])
    await client.ack("orders", [Ack(first.descriptor, token=first.token)])
    for text in ("Order-7", "order-7"):
        found = await caller.ok("GET", f"{SEARCH}?text={text}")
        where = {one["job"]["descriptor"]: one["where"] for one in found["jobs"]}
        expected = {by_header: "header tenant", later: "body", failed: "error"}
        assert where == (expected | {by_key: "unique key"} if text == "Order-7" else expected)
        assert (found["unread"], found["incomplete"]) == ([], False)
        assert found["compared"] == 5
    only = await caller.ok("GET", f"{SEARCH}?text=order-7&queue=mail")
    assert {one["job"]["descriptor"] for one in only["jobs"]} == {by_header, later}
    assert second.descriptor not in where


async def test_a_descriptor_is_looked_up(client: AsyncClient) -> None:
    name = await put(client)
    assert named(await search(client, name)) == {name: "descriptor"}
    assert named(await search(client, name[:-1] + "9")) == {}


@pytest.mark.usefixtures("queues")
async def test_the_job_that_holds_a_unique_key_is_found_without_reading_jobs(
    caller: Caller, client: AsyncClient
) -> None:
    held = {await put(client, queue, unique=UniqueKey("Order-7")) for queue in ("mail", "orders")}
    await put(client, unique=UniqueKey("Order-70"))
    found = await search(client, "Order-7", compared=0)
    assert named(found) == dict.fromkeys(held, "unique key")
    assert (found.compared, sum(part.jobs for part in found.unread)) == (0, 3)
    only = await search(client, "Order-7", queue="mail", compared=0)
    assert len(only.jobs) == 1
    answer = await caller.ok("GET", "/v1/jobs?unique_key=Order-7")
    assert ({job["descriptor"] for job in answer["jobs"]}, answer["incomplete"]) == (held, False)
    answer = await caller.ok("GET", "/v1/jobs?unique_key=Order-7&queue=orders&queue=none")
    assert [job["descriptor"].partition(":")[0] for job in answer["jobs"]] == ["orders"]
    assert (await caller.get("/v1/jobs?unique_key=Order-7&queue=none")).status == 404
    assert (await caller.refused("GET", "/v1/jobs"))["field"] == "unique_key"


async def test_a_key_that_is_free_again_is_found_among_the_jobs_that_are_read(client: AsyncClient) -> None:
    name = await put(client, unique=UniqueKey("Order-7"))
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack("mail", [Ack(job.descriptor, token=job.token)])
    assert named(await search(client, "Order-7")) == {name: "unique key"}
    assert named(await search(client, "Order-7", compared=0)) == {}


async def test_a_server_without_an_index_of_keys_reads_jobs(client: AsyncClient) -> None:
    name = await put(client, unique=UniqueKey("Order-7"))

    class OlderServer(_Wrapped):
        async def find_unique_key(self, *given: str) -> object:
            raise UnknownMethod("findUniqueKey")

    assert named(await search(OlderServer(client), "Order-7")) == {name: "unique key"}  # type: ignore[arg-type]


@pytest.mark.usefixtures("queues")
async def test_a_descriptor_of_another_queue_than_the_one_to_search_is_a_text(client: AsyncClient) -> None:
    name = await put(client, "orders")
    follower = await put(client, headers={"after": name})
    assert named(await search(client, name, queue="mail")) == {follower: "header after"}
    assert named(await search(client, name)) == {name: "descriptor", follower: "header after"}


@pytest.mark.usefixtures("queues")
async def test_a_queue_that_is_deleted_meanwhile_fails_no_search(core: Core, client: AsyncClient) -> None:
    await put(client, "orders")
    found = await put(client, headers={"tenant": "acme"})

    class DeletesAfterCounters(_Wrapped):
        async def queue_stats(self, *queues: str) -> object:
            stats = await client.queue_stats(*queues)
            await core.service.queues.delete_queue("orders", None)
            return stats

    result = await search(DeletesAfterCounters(client), "acme")  # type: ignore[arg-type]
    assert (named(result), result.unread) == ({found: "header tenant"}, [])


@pytest.mark.parametrize("detail", ["REGEX_TOO_COSTLY", "TOO_MANY_WAITING", "INTERNAL"])
async def test_bodies_that_servers_cannot_look_into_now_are_not_read(client: AsyncClient, detail: str) -> None:
    found = await put(client, headers={"tenant": "acme"})

    class ClientWithoutBodySearch(_Wrapped):
        async def scan(self, *given: Any, regex: str | None, **options: Any) -> Scanned:
            if regex is not None:
                raise error_for(500, "not now", detail)
            return await client.scan(*given, **options)

    if detail == "INTERNAL":
        with pytest.raises(PinLaterError, match="not now"):
            await search(ClientWithoutBodySearch(client), "acme")  # type: ignore[arg-type]
        return
    result = await search(ClientWithoutBodySearch(client), "acme")  # type: ignore[arg-type]
    assert (named(result), [part.jobs for part in result.unread]) == ({found: "header tenant"}, [1])


@pytest.mark.parametrize("text", ["a.b", "[", "(?i)", "\\d", "é ü", "a b", "'\"<&"])
async def test_a_text_is_no_pattern(client: AsyncClient, text: str) -> None:
    name = await put(client, body=f"xx {text} yy".encode())
    await put(client, body=b"xx axb 7 yy")
    assert named(await search(client, text)) == {name: "body"}


async def test_what_is_not_read_is_said(client: AsyncClient) -> None:
    for _ in range(30):
        await put(client, headers={"tenant": "acme"})
    [job] = (await client.dequeue("mail", 1)).jobs
    await client.ack("mail", [Ack(job.descriptor, token=job.token)])
    found = await search(client, "acme", found=10)
    assert [(part.state, part.jobs) for part in found.unread] == [(JobState.PENDING, 29)]
    found = await search(client, "none", compared=1)
    assert [(part.state, part.jobs) for part in found.unread] == [(JobState.SUCCEEDED, 1), (JobState.PENDING, 29)]
    assert (found.compared, found.jobs) == (1, [])


async def test_time_ends_a_search(client: AsyncClient, clock: ManualClock) -> None:
    await put(client)

    def later() -> float:
        clock.advance(seconds=3)
        return clock.monotonic()

    found = await JobSearch(client, "x", "", later, SearchBounds(seconds=5.0)).run()
    assert [part.jobs for part in found.unread] == [1]


async def test_a_queue_that_answers_the_same_page_again_ends_its_part(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client)
    calls: Counter[str] = Counter()

    async def stuck(_: AsyncClient, queue: str, *args: object, continuation: str, **more: object) -> Scanned:
        calls[continuation] += 1
        return Scanned([], "5", True)

    monkeypatch.setattr(AsyncClient, "scan", stuck)
    found = await search(client, "x")
    assert [part.jobs for part in found.unread] == [1]
    assert calls == {"0": 1, "5": 1}


@pytest.mark.parametrize(("path", "field"), [("", "text"), ("?text=", "text"), (f"?text={'x' * 201}", "text")])
async def test_a_search_needs_a_text_of_some_length(caller: Caller, path: str, field: str) -> None:
    assert (await caller.refused("GET", f"{SEARCH}{path}"))["field"] == field
