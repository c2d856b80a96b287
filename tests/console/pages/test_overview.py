"""The overview and the find field."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.client import Ack, AsyncClient, Job, QueueConfig
from pinlater.console.pages import overview
from pinlater.console.pages.overview import ROWS, OverviewQuery, overview_of
from pinlater.console.pages.page import queue_path
from pinlater.console.pages.queue_figures import QueueFigures
from pinlater.console.pages.shared_answers import SHARED_MS
from pinlater.domain.clock import ManualClock
from tests.console.pages.conftest import failed_job, stored
from tests.console.pages.visitor import PageVisitor


def figures(name: str = "mail", **given: Any) -> QueueFigures:
    idle = {
        "paused": False,
        **dict.fromkeys(("due", "scheduled", "running", "succeeded", "failed", "waiting_dequeues"), 0),
        **dict.fromkeys(("rate_in", "rate_out", "rate_failed", "rate_retried", "rate_claimed"), 0.0),
        "oldest_waiting_ms": None,
        "incomplete": False,
    }
    return QueueFigures(name=name, **{**idle, **given})


async def test_the_number_of_failed_jobs_leads_to_them(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    """As the entry of the navigation does."""
    assert (await visitor.page("/")).links.count("/failed") == 1
    await failed_job(client)
    clock.advance(ms=SHARED_MS)
    assert (await visitor.page("/")).links.count("/failed") == 2


async def test_the_overview_shows_each_queue_with_its_depth(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.create_queue("orders")
    for _ in range(3):
        await stored(client)
    await failed_job(client)
    page = await visitor.page("/")
    assert {"/queues/mail", "/queues/orders", "/queues/mail?tab=failed"} <= set(page.links)
    answer = (await visitor.get("/")).body.decode()
    assert 'aria-label="3 due, 0 scheduled, 0 running, 1 failed"' in answer
    assert answer.index("/queues/mail") < answer.index("/queues/orders")  # it has jobs and no worker


async def test_without_queues_the_overview_says_how_to_create_one(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.delete_queue("mail", "open sesame")
    assert "pinlater queue create" in (await visitor.page("/")).text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, []),
        ({"due": 5}, ["No worker"]),
        ({"due": 5, "waiting_dequeues": 1}, []),
        ({"due": 5, "running": 1, "oldest_waiting_ms": 61_000}, ["Behind"]),
        ({"rate_out": 10.0, "rate_failed": 2.0}, ["Failing"]),
        ({"rate_out": 10.0, "rate_failed": 1.9}, []),
        ({"rate_out": 8.0, "rate_retried": 2.0}, ["Failing"]),
        ({"due": 5, "paused": True, "oldest_waiting_ms": 61_000}, ["Paused"]),
        ({"incomplete": True, "due": 1}, ["No worker", "Incomplete"]),
        ({"behind_key": 3, "scheduled": 3, "failed": 1}, ["Stopped"]),
        ({"behind_key": 3, "scheduled": 4, "failed": 1}, []),
        ({"behind_key": 3, "scheduled": 3, "running": 1}, []),
        ({"behind_key": 3, "scheduled": 3, "incomplete": True}, ["Incomplete"]),
    ],
)
def test_what_needs_attention_follows_from_the_figures(given: dict[str, Any], words: list[str]) -> None:
    assert [concern.word for concern in figures(**given).concerns] == words


async def test_a_queue_whose_ordering_keys_failed_jobs_have_stopped_needs_attention(
    visitor: PageVisitor, client: AsyncClient, clock: ManualClock
) -> None:
    await client.create_queue("payments", ordered=True)
    await client.configure_queue("payments", QueueConfig(after_failure="stop"))
    await client.enqueue("payments", [Job(b"1", attempts_allowed=1), Job(b"2")])
    assert "Stopped" not in (await visitor.page("/?show=attention")).text
    [job] = (await client.dequeue("payments", 5)).jobs
    await client.ack("payments", [Ack(job.descriptor, succeeded=False)])
    clock.advance(ms=SHARED_MS)
    assert "Stopped" in (await visitor.page("/?show=attention")).text
    await client.unblock_key("payments", "*")
    clock.advance(ms=SHARED_MS)
    assert "Stopped" not in (await visitor.page("/?show=attention")).text


async def test_totals_that_miss_a_shard_say_so(visitor: PageVisitor, monkeypatch: pytest.MonkeyPatch) -> None:
    told = "A shard is unreachable, so the figures are too low: Servers tells which."
    assert told not in (await visitor.page("/")).text

    async def figures_without_a_shard(_api: object) -> list[QueueFigures]:
        return [figures("orders"), figures(incomplete=True)]

    monkeypatch.setattr(overview, "_all_figures", figures_without_a_shard)
    assert told in (await visitor.page("/")).text


def test_the_most_urgent_queue_comes_first() -> None:
    queues = [
        figures("calm", due=100, running=1),
        figures("paused", paused=True, due=1),
        figures("stuck", due=1),
        figures("failing", rate_out=1.0, rate_failed=1.0),
    ]
    assert [queue.name for queue in overview_of(queues, OverviewQuery()).queues] == [
        "stuck",
        "failing",
        "paused",
        "calm",
    ]
    assert overview_of(queues, OverviewQuery(sort="due")).queues[0].name == "calm"
    assert [queue.name for queue in overview_of(queues, OverviewQuery(show="paused")).queues] == ["paused"]


def test_two_thousand_queues_come_in_pages() -> None:
    queues = [figures(f"queue_{number:04}") for number in range(2000)]
    view = overview_of(queues, OverviewQuery(sort="name", page=40))
    assert (len(view.queues), view.pages, view.queues[-1].name) == (ROWS, 40, "queue_1999")
    assert overview_of(queues, OverviewQuery(page=10**9)).page == 40
    assert overview_of(queues, OverviewQuery(page=-1)).page == 1
    assert [queue.name for queue in overview_of(queues, OverviewQuery(filter="_0017")).queues] == ["queue_0017"]


def test_a_backlog_is_drained_by_what_goes_out_more_than_in() -> None:
    assert figures(due=100, rate_in=5.0, rate_out=15.0).drained_in_ms == 10_000
    assert figures(due=100, rate_in=15.0, rate_out=5.0).drained_in_ms is None


async def test_find_goes_to_a_job_a_queue_or_a_filter(visitor: PageVisitor) -> None:
    for text, path in {
        "mail": "/queues/mail",
        "mail:s1:p1:7": "/jobs/mail:s1:p1:7",
        "ma": "/?filter=ma",
        "": "/",
        "//evil.example:1": "/jobs/%2F%2Fevil.example:1",
    }.items():
        answer = await visitor.get(f"/find?text={text}", accept="text/html")
        assert (answer.status, answer.headers["location"]) == (303, path)


async def test_a_choice_that_does_not_exist_is_an_error_that_names_it(visitor: PageVisitor) -> None:
    page = await visitor.page("/?sort=color", 400)
    assert "sort" in page.text
    assert "INVALID_ARGUMENT" in page.text


async def test_pinned_queues_come_first_in_this_browser(visitor: PageVisitor, client: AsyncClient) -> None:
    name = "alpaca"
    for queue in (name, "zebra"):
        await client.create_queue(queue)
    await stored(client)  # `mail` needs attention
    kept = ""
    for queue in ("zebra", name):
        answer = await visitor.submit(f"{queue_path(queue)}/pin", cookie=kept)
        assert (answer.status, answer.headers["location"]) == (303, "/")
        assert {"httponly", "samesite=strict", "path=/"} <= {
            part.strip().lower() for part in answer.headers["set-cookie"].split(";")
        }
        kept = answer.headers["set-cookie"].partition(";")[0]
    page = (await visitor.get("/", cookie=kept)).body.decode()
    assert page.index(f">{name}<") < page.index(">zebra<") < page.index(">mail<")
    assert page.count("★") == 2
    answer = await visitor.submit(f"{queue_path(name)}/unpin", cookie=kept)
    kept = answer.headers["set-cookie"].partition(";")[0]
    page = (await visitor.get("/", cookie=kept)).body.decode()
    assert page.index(">zebra<") < page.index(">mail<") < page.index(f">{name}<")
    assert (await visitor.get("/")).body.decode().count("★") == 0


async def test_no_more_queues_are_pinned_than_a_browser_keeps(visitor: PageVisitor) -> None:
    kept = "pinlater-pins=" + ":".join(f"{number:0100}" for number in range(34))
    refused = await visitor.submit("/queues/mail/pin", cookie=kept)
    assert refused.status == 303
    refused = await visitor.submit(f"/queues/{'x' * 100}/pin", cookie=kept)
    assert refused.status == 409
    assert "34 queues are pinned" in refused.body.decode()


@pytest.mark.parametrize("cookie", ["pinlater-pins=", "pinlater-pins=::%", "pinlater-pins=%ff%00:mail"])
async def test_a_cookie_of_pins_that_is_no_good_shows_the_page(visitor: PageVisitor, cookie: str) -> None:
    assert (await visitor.get("/", cookie=cookie)).status == 200


@pytest.mark.parametrize("name", ["pinlater-pins", "pinlater-session", "another"])
@pytest.mark.parametrize("inner", ["\\", '\\"', "\\101", ";", "=", " "], ids=ascii)
async def test_a_cookie_in_quotes_is_read_in_one_pass(visitor: PageVisitor, name: str, inner: str) -> None:
    """To take it out of its quotes costs `http.cookies` hours at this length, on some versions of Python."""
    cookie = f'{name}="{inner * (2_000_000 // len(inner))}"'
    assert (await visitor.get("/", cookie=cookie)).status == 200


async def test_of_two_cookies_of_one_name_the_last_one_counts(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.create_queue("orders")
    page = (await visitor.get("/", cookie="pinlater-pins=mail; a; b=c=d;pinlater-pins = orders ")).body.decode()
    assert "/queues/orders/unpin" in page
    assert "/queues/mail/unpin" not in page


@pytest.mark.parametrize("path", ["/?path=1", "/?fields=1", "/failed?path=1", "/none?path=1"])
async def test_no_name_in_a_query_is_an_error_of_the_console(visitor: PageVisitor, path: str) -> None:
    assert (await visitor.get(path, accept="text/html")).status < 500


async def test_the_overview_shows_the_limit_of_a_queue(visitor: PageVisitor, client: AsyncClient) -> None:
    await client.create_queue("orders")
    await client.configure_queue("orders", QueueConfig(max_jobs_per_second=2.5))
    assert [one.max_jobs_per_second for one in await client.queue_stats("orders", "mail")] == [2.5, None]
    page = (await visitor.get("/?sort=limit")).body.decode()
    assert 'data-label="Limit /s">2.5<' in page
    assert page.index(">orders<") < page.index(">mail<")
