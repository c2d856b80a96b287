"""The pages every server has, asked for over a real socket."""

from __future__ import annotations

import json

import pytest
from prometheus_client import parser

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.http.status import Readiness
from pinlater.server.telemetry.metrics import TICK_S

from .conftest import Site


async def test_ping_answers_as_the_originals_admin_port_did(site: Site) -> None:
    answer = await site.get("/ping")
    assert (answer.status, json.loads(answer.body)) == (200, {"response": "pong"})
    assert answer.headers["content-type"] == "application/json"
    assert (await site.get("/ping.txt")).text == "pong"
    assert (await site.get("/health")).text == "OK"


async def test_statistics_come_as_text_and_as_json(site: Site) -> None:
    site.metrics.queue("emails").enqueue = 3
    text, content = await site.get("/stats.txt"), await site.get("/stats.json")
    assert text.text.startswith("counters:\n")
    assert "  emails_enqueue: 3\n" in text.text
    assert text.headers["content-type"].startswith("text/plain")
    assert json.loads(content.body)["counters"]["emails_enqueue"] == 3


async def test_a_period_shows_the_last_minute_only(site: Site) -> None:
    queue = site.metrics.queue("emails")
    queue.enqueue = 3
    for tick in range(14):
        site.metrics.tick(tick * TICK_S)
    queue.enqueue += 4
    site.metrics.tick(14 * TICK_S)
    assert "  emails_enqueue: 4\n" in (await site.get("/stats.txt?period=60")).text
    assert json.loads((await site.get("/stats.json?period=60")).body)["counters"]["emails_enqueue"] == 4
    assert "  emails_enqueue: 7\n" in (await site.get("/stats.txt")).text


@pytest.mark.parametrize("period", ["59", "x", "", "6" * 1000])
async def test_a_period_that_is_not_kept_is_refused_clearly(site: Site, period: str) -> None:
    answer = await site.get(f"/stats.txt?period={period}")
    assert answer.status == 400
    assert "only period=60" in answer.text


async def test_prometheus_can_scrape_it(site: Site) -> None:
    site.metrics.queue("emails").enqueue = 3
    site.counts.append(QueueCounts("emails", PriorityCounts(1, pending=9, future=2)))
    answer = await site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    found = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in parser.text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert found["pinlater_jobs_enqueued_total", None] == 3
    assert found["pinlater_queue_jobs", "due"] == 7
    assert found["pinlater_http_connections", None] == 1


async def test_open_metrics_is_negotiated(site: Site) -> None:
    answer = await site.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_alive_stays_ok_while_ready_says_why_it_is_not(site: Site) -> None:
    """An orchestrator restarts what is not alive and only withholds requests from what is not ready."""
    assert (await site.get("/readyz")).text == "ready\n"
    site.readiness = Readiness(False, ("draining", "the store is unreachable"))
    answer = await site.get("/readyz")
    assert (answer.status, answer.text) == (503, "not ready: draining; the store is unreachable\n")
    assert (await site.get("/healthz")).status == 200


async def test_server_info_is_what_the_app_says(site: Site) -> None:
    assert json.loads((await site.get("/server_info")).body) == {"name": "pinlater", "version": "1.2.3"}


@pytest.mark.parametrize(
    "path",
    ["/stats.txt", "/stats.json", "/metrics", "/ping", "/ping.txt", "/health", "/healthz", "/readyz", "/server_info"],
)
async def test_every_page_takes_get_and_head_and_nothing_else(site: Site, path: str) -> None:
    get, head, post = await site.get(path), await site.get(path, "HEAD"), await site.get(path, "POST")
    assert (get.status, head.status, post.status) == (200, 200, 405)
    assert head.body == b""
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert post.headers["allow"] == "GET, HEAD"
