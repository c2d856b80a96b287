"""The pages every server has: statistics in the original's and in Prometheus' form, and health.

Numbers are read on the event loop, a matter of microseconds a queue; their text is made in one thread beside it, so that a page
of thousands of queues, however many ask for it, holds up no job. Weakness: that thread takes its share of the interpreter while it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple, Protocol, TypeVar

from prometheus_client.registry import Collector

from pinlater.server.http.messages import JSON, TEXT, BadRequest, Request, Response, json_response, text_response
from pinlater.server.http.routing import Router
from pinlater.server.telemetry import ostrich, prometheus
from pinlater.server.telemetry.busiest import only_busiest
from pinlater.server.telemetry.metrics import PERIOD_S, Metrics
from pinlater.server.telemetry.numbers import Numbers, look_in_turns

T = TypeVar("T")


class Readiness(NamedTuple):
    """Whether this server should get requests now, and if not, why: starting, draining, an unreachable store.

    With reasons though it should: what it does without, one shard of several.
    """

    ok: bool
    reasons: tuple[str, ...] = ()


class StatusSource(Protocol):
    """What the pages show: one server, or several processes as one."""

    async def look(self, *, last_minute: bool) -> Callable[[], Numbers]:
        """All numbers; what is returned may be called in any thread."""
        ...

    def processes(self) -> Collector | None:
        """Prometheus' numbers of the processes, if it isn't only this one."""
        ...

    async def alive(self) -> Readiness:
        """Whether it runs at all, so that no restart would help."""
        ...

    async def readiness(self) -> Readiness:
        """Whether it should get requests."""
        ...

    async def server_info(self) -> Mapping[str, object]:
        """What it is."""
        ...


class OneServer:
    """A server in this process. Its event loop turns, or none of its pages would be answered."""

    def __init__(
        self,
        metrics: Metrics,
        readiness: Callable[[], Readiness],
        server_info: Callable[[], Mapping[str, object]],
        queue_counts: prometheus.QueueCountsSource = lambda: (),
    ) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._server_info = server_info
        self._queue_counts = queue_counts

    async def look(self, *, last_minute: bool) -> Callable[[], Numbers]:
        return await look_in_turns(self._metrics, self._queue_counts(), last_minute=last_minute)

    def processes(self) -> Collector | None:
        return None

    async def alive(self) -> Readiness:
        return Readiness(True)

    async def readiness(self) -> Readiness:
        return self._readiness()

    async def server_info(self) -> Mapping[str, object]:
        return self._server_info()


class StatusPages:
    """The handlers; `add_to` says which path each of them answers."""

    def __init__(self, source: StatusSource, renderer: Executor, queue_series_max: int) -> None:
        self._source = source
        self._queue_series_max = queue_series_max
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
        numbers = await self._asked_for(request)
        text = await self._render(lambda: ostrich.text(_sections(numbers())))
        return Response(200, TEXT, text.encode())

    async def stats_json(self, request: Request) -> Response:
        numbers = await self._asked_for(request)
        text = await self._render(lambda: ostrich.as_json(_sections(numbers())))
        return Response(200, JSON, text.encode())

    async def _asked_for(self, request: Request) -> Callable[[], Numbers]:
        period = request.query.get("period")
        if period not in {None, f"{PERIOD_S:.0f}"}:
            raise BadRequest(
                f"period {str(period)[:20]!r} is not kept; only period={PERIOD_S:.0f} is, or none for all since the start"
            )
        return await self._source.look(last_minute=period is not None)

    async def prometheus_page(self, request: Request) -> Response:
        numbers, processes = await self._source.look(last_minute=False), self._source.processes()
        accept = request.headers.get("accept", "")

        def render() -> tuple[bytes, str]:
            reading, gauges, _, counts = only_busiest(numbers(), self._queue_series_max)
            return prometheus.render(prometheus.MetricsPage(reading, gauges, counts, processes), accept)

        body, content_type = await self._render(render)
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
        """Says nothing of the store: a restart would not help it."""
        alive = await self._source.alive()
        return text_response("ok\n") if alive.ok else text_response("".join(f"{it}\n" for it in alive.reasons), 503)

    async def ready(self, _: Request) -> Response:
        readiness = await self._source.readiness()
        if readiness.ok:
            return text_response("; ".join(("ready", *readiness.reasons)) + "\n")
        return text_response("not ready: " + "; ".join(readiness.reasons or ("no reason given",)) + "\n", 503)

    async def info(self, _: Request) -> Response:
        return json_response(dict(await self._source.server_info()))


def _sections(numbers: Numbers) -> ostrich.Sections:
    return ostrich.sections(numbers.reading, numbers.gauges, numbers.labels)
