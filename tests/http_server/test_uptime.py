"""The uptime on the page /server_info: a clock that is set right, as at the start beside other servers, does not change it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pinlater.domain.clock import SystemClock
from pinlater.server.config.load import load
from pinlater.server.config.settings import Settings
from pinlater.server.main.app import App
from pinlater.server.main.front import FrontApp
from pinlater.server.main.processes.combined_pages import Joined
from pinlater.server.telemetry.metrics import Metrics

_HOUR_MS = 3_600_000


class HandTurned:
    """The monotonic clock of a machine, in seconds."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def clock(self) -> SystemClock:
        return SystemClock(wall=lambda: 1_767_225_600.0, monotonic=lambda: self.now_s)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    flags = {"store": f"sqlite:{tmp_path}/jobs.db", "thrift.port": 0, "http.port": 0}
    return load(None, {}, flags).settings


def check(info: Mapping[str, object]) -> None:
    assert (info["uptime_ms"], info["started_at_ms"]) == (7_500, 1_767_225_600_000)


@pytest.mark.parametrize("shift_ms", [_HOUR_MS, -_HOUR_MS])
async def test_a_server_counts_its_uptime_by_the_monotonic_clock(settings: Settings, shift_ms: int) -> None:
    machine = HandTurned()
    clock = machine.clock()
    app = App(settings, clock=clock)
    machine.now_s += 7.5
    clock.shift(shift_ms)
    check(app.server_info())


async def test_a_front_process_counts_its_uptime_by_the_monotonic_clock(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = HandTurned()
    clock = machine.clock()
    monkeypatch.setattr("pinlater.server.main.front.SystemClock", lambda: clock)
    app = FrontApp(settings, str(tmp_path / "nowhere"), 1)
    machine.now_s += 7.5
    clock.shift(_HOUR_MS)
    check(app.server_info())


async def test_a_supervisor_counts_its_uptime_by_the_monotonic_clock() -> None:
    machine = HandTurned()
    clock = machine.clock()
    pages = Joined([], Metrics(), clock, lambda: "ready")
    machine.now_s += 7.5
    clock.shift(_HOUR_MS)
    check(await pages.server_info())
