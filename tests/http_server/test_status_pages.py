"""The pages every server has, asked for over a real socket."""

from __future__ import annotations

import pytest
from prometheus_client import parser

from pinlater.domain.queue import PriorityCounts, QueueCounts
from pinlater.server.http.status import Readiness

from .conftest import Site

TEXT, JSON = "text/plain; charset=utf-8", "application/json"
PAGES = {
    "/stats.txt": TEXT,
    "/stats.json": JSON,
    "/metrics": "text/plain; version=0.0.4; charset=utf-8",
    "/ping": JSON,
    "/ping.txt": TEXT,
    "/health": TEXT,
    "/healthz": TEXT,
    "/readyz": TEXT,
    "/server_info": JSON,
}


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


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_has_its_media_type_and_takes_get_and_head_and_nothing_else(site: Site, path: str) -> None:
    get, head, post = await site.get(path), await site.get(path, "HEAD"), await site.get(path, "POST")
    assert (get.status, head.status, post.status) == (200, 200, 405)
    assert get.headers["content-type"] == PAGES[path]
    assert head.body == b""
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert post.headers["allow"] == "GET, HEAD"
