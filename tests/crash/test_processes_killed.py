"""kill -9 and SIGSTOP of the processes of `serve --processes` on one SQLite file, under load."""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.servers import PinLaterServer, pinlater_server
from tests.crash.history import check
from tests.crash.kill_rounds import SETTINGS, drain, final_states
from tests.crash.load_clients import QUEUE, LoadClients
from tests.crash.wire_client import WireClient

pytestmark = pytest.mark.crash

DEADLINE_S = 60.0
STORE, FRONT = 0, 1
# What a client may be told while a process is away; each says that the call may be sent again.
RETRYABLE = {"SHARD_UNREACHABLE", "OUTCOME_UNKNOWN", "DRAINING"}


def test_no_promise_is_broken_if_processes_of_one_file_are_killed_or_stopped(tmp_path: Path) -> None:
    seed = int(os.environ.get("CRASH_SEED") or secrets.randbelow(2**31))
    pause = threading.Event()
    with pinlater_server(
        tmp_path / "store.db", "--processes", "2", log=tmp_path / "server.log", env=SETTINGS
    ) as server:
        with WireClient(server.port) as client:
            client.create_queue(QUEUE)
        _until(lambda: _all_serve(server))
        clients = LoadClients(lambda: server.port, seed, producers=4, workers=6, jobs_max=8_000)
        clients.start()
        try:
            for number in (STORE, FRONT):
                pause.wait(0.3)
                before = _processes(server)[number]
                os.kill(before["pid"], signal.SIGKILL)
                _until(lambda number=number, before=before: _serves_again(server, number, before["starts"]))  # type: ignore[misc]
            store = _processes(server)[STORE]["pid"]
            os.kill(store, signal.SIGSTOP)
            pause.wait(1.0)
            os.kill(store, signal.SIGCONT)
            pause.wait(0.3)
            clients.stop_producing()
            drain(server)
        finally:
            clients.stop()
        history = clients.recorder.history()
        violations = check(history, final_states(server, history.seen()))
        assert server.stop() == 0
    assert "Traceback" not in server.output()
    assert not violations, f"CRASH_SEED={seed}\n{violations[:20]}"
    assert not clients.unexpected, f"CRASH_SEED={seed}\n{clients.unexpected}"
    assert {(detail, retryable) for _, detail, retryable in clients.refusals} <= {(each, True) for each in RETRYABLE}
    assert history.acknowledged(), "the load did nothing, so nothing was shown"
    assert history.claims, "nothing was claimed, so nothing was shown"


def _processes(server: PinLaterServer) -> list[dict[str, Any]]:
    return list(json.loads(server.get("/server_info"))["processes"])


def _all_serve(server: PinLaterServer) -> bool:
    return all(process["state"] == "ready" for process in _processes(server))


def _serves_again(server: PinLaterServer, number: int, starts: int) -> bool:
    return _all_serve(server) and _processes(server)[number]["starts"] > starts


def _until(true: Callable[[], bool]) -> None:
    deadline, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not true():
        assert time.monotonic() < deadline
        pause.wait(0.05)
