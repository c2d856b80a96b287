"""The pages every server has: statistics in the original's and in Prometheus' form, and health.

Numbers are read on the event loop, a matter of microseconds a queue; their text is made in one thread beside it, so that a page
of thousands of queues, however many ask for it, holds up no job. Weakness: that thread takes its share of the interpreter while it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from pinlater.http_server.messages import JSON, TEXT, BadRequest, Request, Response, json_response, text_response
from pinlater.http_server.routing import Router
from pinlater.telemetry import ostrich, prometheus
from pinlater.telemetry.metrics import PERIOD_S, GaugeReading, Metrics
from pinlater.telemetry.snapshots import Snapshot, difference

T = TypeVar("T")


class Readiness(NamedTuple):
    """Whether this server should get requests now, and if not, why: starting, draining, the store out of reach.

    With reasons though it should: what it does without, one shard of several.
    """

    ok: bool
    reasons: tuple[str, ...] = ()


class StatusPages:
    """The handlers; `add_to` says which path each of them answers."""

    def __init__(
        self,
        metrics: Metrics,
        readiness: Callable[[], Readiness],
        server_info: Callable[[], Mapping[str, object]],
        queue_counts: prometheus.QueueCountsSource,
        renderer: Executor,
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._server_info = server_info
        self._queue_counts = queue_counts
        self._renderer = renderer

    def add_to(self, router: Router) -> None:
        router.add("/stats.txt", self.stats_text)
        router.add("/stats.json", self.stats_json)
        router.add("/metrics", self.prometheus_page)
        router.add("/ping", self.ping)
        router.add("/ping.txt", self.ping_text)
        router.add("/health", self.health)
        router.add("/healthz", self.alive)
        router.add("/readyz", self.ready)
        router.add("/server_info", self.info)

    async def stats_text(self, request: Request) -> Response:
        newer, older, gauges = self._asked_for(request)
        labels = dict(self._metrics.labels)
        text = await self._render(lambda: ostrich.text(ostrich.sections(difference(newer, older), gauges, labels)))
        return Response(200, TEXT, text.encode())

    async def stats_json(self, request: Request) -> Response:
        newer, older, gauges = self._asked_for(request)
        labels = dict(self._metrics.labels)
        text = await self._render(lambda: ostrich.as_json(ostrich.sections(difference(newer, older), gauges, labels)))
        return Response(200, JSON, text.encode())

    def _asked_for(self, request: Request) -> tuple[Snapshot, Snapshot | None, list[GaugeReading]]:
        period = request.query.get("period")
        gauges = self._metrics.read_gauges()
        if period is None:
            return self._metrics.snapshot(), None, gauges
        if period != f"{PERIOD_S:.0f}":
            raise BadRequest(
                f"period {period[:20]!r} is not kept; only period={PERIOD_S:.0f} is, or none for all since the start"
            )
        return *self._metrics.last_minute(), gauges

    async def prometheus_page(self, request: Request) -> Response:
        snapshot, gauges, counts = self._metrics.snapshot(), self._metrics.read_gauges(), self._queue_counts()
        accept = request.headers.get("accept", "")
        body, content_type = await self._render(
            lambda: prometheus.render(prometheus.Page(difference(snapshot), gauges, counts), accept)
        )
        return Response(200, content_type, body)

    async def _render(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._renderer, work)

    async def ping(self, _: Request) -> Response:
        return json_response({"response": "pong"})

    async def ping_text(self, _: Request) -> Response:
        return text_response("pong")

    async def health(self, _: Request) -> Response:
        return text_response("OK")

    async def alive(self, _: Request) -> Response:
        """The process's event loop turns, or this would not be answered. Says nothing of the store: a restart would not help it."""
        return text_response("ok\n")

    async def ready(self, _: Request) -> Response:
        readiness = self._readiness()
        if readiness.ok:
            return text_response("; ".join(("ready", *readiness.reasons)) + "\n")
        return text_response("not ready: " + "; ".join(readiness.reasons or ("no reason given",)) + "\n", 503)

    async def info(self, _: Request) -> Response:
        return json_response(dict(self._server_info()))
