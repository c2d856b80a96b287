"""What the background loop of a worker runs: the supervisor's channel, which then serves the probes, or else the worker's own probes."""

from __future__ import annotations

import asyncio
from functools import partial

from pinlater.worker._consumer.worker_run import WorkerRun
from pinlater.worker._process.background_loop import Service
from pinlater.worker._process.control_channel import ControlChannel, Orders, WorkerHello
from pinlater.worker._process.endpoint import serve_probes
from pinlater.worker._process.health import WorkerHealth


def services_of(run: WorkerRun, health: WorkerHealth, control: ControlChannel | None) -> list[Service]:
    """Called on the worker's event loop."""
    settings, on_loop = run.settings, asyncio.get_running_loop().call_soon_threadsafe

    def stop_now() -> None:
        run.stop_now.set()
        run.stop.set()

    if control is not None:
        hello = WorkerHello(settings.health_host, settings.health_port, settings.grace_ms)
        orders = Orders(health.report, partial(on_loop, run.stop.set), partial(on_loop, stop_now))
        return [partial(control.obey, hello, orders)]
    if settings.health_port is not None:
        return [partial(serve_probes, settings.health_host, settings.health_port, health)]
    return []
