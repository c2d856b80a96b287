"""Processes under a supervisor: started, replaced, stopped, and shown as one."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]
import pytest

from pinlater.server.main.processes import supervisor
from pinlater.server.main.processes.ports import reserved
from tests.processes.conftest import DEADLINE_S, Many

Make = Callable[..., Many]


async def test_pages_show_the_sums_of_all(many: Make) -> None:
    one = await many(3).start()
    assert await one.metric("pinlater_jobs_enqueued_total") == {"emails": 60}
    assert await one.metric("pinlater_connections") == {"": 6}
    assert await one.metric("pinlater_process_connections") == {"0": 1, "1": 2, "2": 3}
    assert await one.metric("pinlater_process_serves") == {"0": 1, "1": 1, "2": 1}
    assert await one.metric("pinlater_processes") == {"": 3}
    assert set(await one.metric("process_resident_memory_bytes")) == {"0", "1", "2", "supervisor"}
    assert "  emails_enqueue: 60\n" in (await one.get("/stats.txt"))[1]
    assert "  emails_enqueue: 60\n" in (await one.get("/stats.txt?period=60"))[1]
    assert await one.get("/readyz") == (200, "ready\n")
    assert await one.get("/healthz") == (200, "ok\n")


async def test_info_names_the_server_and_its_processes(many: Make) -> None:
    one = await many(2).start()
    info = await one.info()
    assert (info["name"], info["state"], info["members"]) == ("pinlater", "ready", [1])
    assert [(found["process"], found["starts"]) for found in info["processes"]] == [(0, 1), (1, 1)]
    children = {child.pid for child in psutil.Process().children()}
    assert children >= {found["pid"] for found in info["processes"]}


async def test_no_counter_falls_when_a_process_dies(many: Make) -> None:
    one = await many(2).start()
    assert await one.metric("pinlater_jobs_enqueued_total") == {"emails": 30}
    os.kill(await one.process_id(1), signal.SIGKILL)
    again = asyncio.create_task(one.until_serves(1, starts=2))
    while not again.done():
        assert (await one.metric("pinlater_jobs_enqueued_total"))["emails"] >= 30
    await again
    assert await one.metric("pinlater_jobs_enqueued_total") == {"emails": 50}
    assert await one.metric("pinlater_process_starts") == {"0": 1, "1": 2}


async def test_a_process_that_dies_is_started_again_and_the_others_go_on(
    many: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = await many(2).start()
    first, second = await one.process_id(0), await one.process_id(1)
    os.kill(second, signal.SIGKILL)
    await one.until_serves(1, starts=2)
    assert one.starts(1) == 2
    assert await one.process_id(0) == first
    assert await one.process_id(1) != second
    (record,) = [record for record in caplog.records if "was ended by SIGKILL" in record.getMessage()]
    assert (record.levelno, record.__dict__["process_number"]) == (logging.WARNING, 1)


async def test_one_that_can_not_start_is_named_and_tried_again(many: Make, caplog: pytest.LogCaptureFixture) -> None:
    one = many(2)
    one.behave(1, "fail")
    await one.start()
    await one.until(lambda: one.starts(1) >= 2)
    status, text = await one.get("/readyz")
    assert status == 200
    assert text in ("ready; process 1: waits to be started again\n", "ready; process 1: starting\n")
    one.behave(1, "serve")
    await one.until_serves(1)
    assert await one.get("/readyz") == (200, "ready\n")
    assert any(record.__dict__.get("reason") == "the store is away" for record in caplog.records)


async def test_the_error_that_stops_the_first_process_is_the_commands_error(many: Make) -> None:
    one = many(3)
    one.behave(0, "fail")
    with pytest.raises(OSError, match="the store is away"):
        await one.begin()
    assert (one.starts(0), one.starts(1)) == (1, 0)


async def test_a_program_that_is_not_there_is_an_error_too(many: Make) -> None:
    one = many(2, program="/nowhere/python")
    with pytest.raises(OSError, match=r"can't be started: .*No such file"):
        await one.begin()


async def test_a_signal_while_the_first_starts_ends_it_in_order(many: Make) -> None:
    one = many(2)
    one.begin()
    await one.until(lambda: one.starts(0))
    one.signal(signal.SIGTERM)
    assert one.running is not None
    async with asyncio.timeout(DEADLINE_S):
        assert await one.running == 0
    assert one.starts(1) == 0


async def test_not_ready_are_all_and_the_reason_is_said_once(many: Make) -> None:
    one = many(2)
    one.behave(0, "unready")
    one.behave(1, "unready")
    await one.start()
    assert await one.get("/readyz") == (503, "not ready: shard 1: away\n")
    assert await one.get("/healthz") == (200, "ok\n")


async def test_readyz_names_a_process_that_is_not_ready(many: Make) -> None:
    one = many(2)
    one.behave(1, "unready")
    await one.start()
    assert await one.get("/readyz") == (200, "ready; process 1: shard 1: away\n")


async def test_one_that_says_nothing_is_left_out_and_named(many: Make) -> None:
    one = many(2, answer_s=0.2)
    one.behave(1, "deaf")
    await one.start()
    assert await one.get("/healthz") == (503, "process 1: no answer\n")
    assert await one.get("/readyz") == (200, "ready; process 1: no answer\n")
    assert await one.metric("pinlater_jobs_enqueued_total") == {"emails": 10}


async def test_one_that_says_nothing_for_too_long_is_killed_and_replaced(
    many: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.02)
    one = many(2, answer_s=0.05, stuck_s=0.1)
    one.behave(1, "deaf")
    await one.start()
    one.behave(1, "serve")
    await one.until_serves(1, starts=2)
    assert any("does not answer and is killed" in record.getMessage() for record in caplog.records)


async def test_a_signal_stops_all_processes_and_a_second_one_stops_them_at_once(many: Make) -> None:
    one = many(2)
    one.behave(1, "slow")
    await one.start()
    assert one.running is not None
    one.signal(signal.SIGTERM)
    await one.until(lambda: one.orders(0) and one.orders(1))
    assert (await one.get("/readyz"))[0] == 503
    assert not one.running.done()
    one.signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE_S):
        assert await one.running == 0
    assert one.orders(0) == ["stop"]
    assert one.orders(1) == ["stop", "stop", "now"]


async def test_a_reload_reaches_all(many: Make) -> None:
    one = await many(2).start()
    one.signal(signal.SIGHUP)
    await one.until(lambda: one.orders(0) == one.orders(1) == ["reload"])


def test_a_port_is_found_once_and_kept() -> None:
    with reserved("127.0.0.1", 0) as port, socket.socket() as alone, socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sharing.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            alone.bind(("127.0.0.1", port))


def test_a_port_that_another_server_shares_with_its_processes_is_taken() -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"), reserved("127.0.0.1", other.getsockname()[1]):
            pass


def test_all_addresses_of_a_host_get_the_same_port() -> None:
    with reserved("localhost", 0) as port:
        assert port > 0


async def test_one_console_runs_beside_all(many: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = await many(2, console=True).start()
    await one.until(lambda: "the console is ready" in caplog.messages)
    one.signal(signal.SIGTERM)
    assert one.running is not None
    assert await one.running == 0
