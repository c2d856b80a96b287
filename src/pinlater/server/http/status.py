"""The pages of every server: statistics in the original's and in Prometheus' format, the demand for job slots, and health.

Numbers are read on the event loop, which takes microseconds a queue; their text is made in one separate thread, so that a page of
thousands of queues, however many clients request it, delays no job. Weakness: that thread takes its share of the interpreter while it
works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from prometheus_client.registry import Collector

from pinlater.domain.queue import QUEUE_NAME_CHARS_MAX, QueueCounts
from pinlater.server.http.messages import (
    JSON,
    TEXT,
    BadRequest,
    Handler,
    Request,
    Response,
    json_response,
    text_response,
)
from pinlater.server.telemetry import ostrich, prometheus
from pinlater.server.telemetry.busiest import only_busiest
from pinlater.server.telemetry.catalogue import SLOTS_WANTED
from pinlater.server.telemetry.metrics import PERIOD_S, GaugeReading, Metrics
from pinlater.server.telemetry.numbers import Numbers, look_in_turns

T = TypeVar("T")


class Readiness(NamedTuple):
    """Whether this server should get requests now, and if not, why: starting, draining, an unreachable store.

    If it should although there are reasons: what is missing, such as one shard of several.
    """

    ok: bool
    reasons: tuple[str, ...] = ()


class StatusSource(Protocol):
    """The source of the pages: one server, or several processes as one."""

    async def look(self, *, last_minute: bool) -> Callable[[], Numbers]:
        """Takes all numbers. The returned function may be called in any thread."""

    async def gauges(self) -> Sequence[GaugeReading]:
        """Only the gauges, which cost less."""

    def processes(self) -> Collector | None:
        """Prometheus' numbers of the processes, if there are others than this one."""

    async def alive(self) -> Readiness:
        """Returns whether it runs at all, so that no restart would help."""

    async def readiness(self) -> Readiness:
        """Returns whether it should get requests."""

    async def server_info(self) -> Mapping[str, object]:
        """Returns the information about the server."""


class OneServer(NamedTuple):
    """A server in this process. Its event loop runs, or none of its pages would be answered."""

    metrics: Metrics
    ready: Callable[[], Readiness]
    info: Callable[[], Mapping[str, object]]
    queue_counts: Callable[[], Sequence[QueueCounts]] = lambda: ()

    async def look(self, *, last_minute: bool) -> Callable[[], Numbers]:
        return await look_in_turns(self.metrics, self.queue_counts(), last_minute=last_minute)

    async def gauges(self) -> Sequence[GaugeReading]:
        return self.metrics.read_gauges()

    def processes(self) -> Collector | None:
        return None

    async def alive(self) -> Readiness:
        return Readiness(True)

    async def readiness(self) -> Readiness:
        return self.ready()

    async def server_info(self) -> Mapping[str, object]:
        return self.info()


class StatusPages:
    """The pages of `source`, whose text `renderer` makes."""

    def __init__(self, source: StatusSource, renderer: Executor, queue_series_max: int) -> None:
        self._source = source
        self._queue_series_max = queue_series_max
        self._renderer = renderer

    def by_path(self) -> dict[str, Handler]:
        """Returns the page for each path. Paths are compared as received: no request ever looks up a file."""
        return {
            "/stats.txt": partial(self._statistics, ostrich.text, TEXT),
            "/stats.json": partial(self._statistics, ostrich.as_json, JSON),
            "/metrics": self._metrics,
            "/ping": _always(json_response({"response": "pong"})),
            "/ping.txt": _always(text_response("pong")),
            "/health": _always(text_response("OK")),
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/server_info": self._info,
            "/demand": self._demand,
        }

    async def _statistics(
        self, form: Callable[[ostrich.Sections], str], content_type: str, request: Request
    ) -> Response:
        period = request.last("period")
        if period not in {None, f"{PERIOD_S:.0f}"}:
            raise BadRequest(
                f"period {str(period)[:20]!r} is not kept; only period={PERIOD_S:.0f} is, or none for all since the start"
            )
        numbers = await self._source.look(last_minute=period is not None)
        text = await self._render(lambda: form(ostrich.sections(numbers())))
        return Response(200, content_type, text.encode())

    async def _metrics(self, request: Request) -> Response:
        numbers, processes = await self._source.look(last_minute=False), self._source.processes()
        accept = request.headers.get("accept", "")

        def render() -> tuple[bytes, str]:
            return prometheus.render(only_busiest(numbers(), self._queue_series_max), processes, accept)

        body, content_type = await self._render(render)
        return Response(200, content_type, body)

    async def _demand(self, request: Request) -> Response:
        """Answers the slots that the named queues can use, as a sum and for each queue, equal to the gauge; 503 if one is unknown."""
        names = list(dict.fromkeys(value for name, value in request.fields if name == "queue"))
        if not names:
            raise BadRequest("Name each queue of the pool: /demand?queue=NAME&queue=NAME")
        readings = await self._source.gauges()
        wanted = next((reading.values for reading in readings if reading.gauge.name == SLOTS_WANTED.ostrich), {})
        if not wanted:
            reasons = "; ".join((await self._source.readiness()).reasons)
            return text_response(f"Not known now: {reasons or 'no queue is counted yet'}\n", 503)
        for name in names:
            if name not in wanted:
                raise BadRequest(f"There is no queue {name[:QUEUE_NAME_CHARS_MAX]!r}", 404)
        queues = {name: int(wanted[name]) for name in names}
        return json_response({"slots": sum(queues.values()), "queues": queues})

    async def _render(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._renderer, work)

    async def _alive(self, _: Request) -> Response:
        """Answers whether the process works. Ignores the store, since a restart would not help it."""
        alive = await self._source.alive()
        return text_response("ok\n") if alive.ok else text_response("".join(f"{it}\n" for it in alive.reasons), 503)

    async def _ready(self, _: Request) -> Response:
        readiness = await self._source.readiness()
        if readiness.ok:
            return text_response("; ".join(("ready", *readiness.reasons)) + "\n")
        return text_response("not ready: " + "; ".join(readiness.reasons or ("no reason given",)) + "\n", 503)

    async def _info(self, _: Request) -> Response:
        return json_response(dict(await self._source.server_info()))


def _always(response: Response) -> Handler:
    async def answer(_: Request) -> Response:
        return response

    return answer
