"""`pinlater serve --example`: queues in every state, bounded, that end with the server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]
import pytest

from pinlater.cli import demo_tasks, example_process
from pinlater.cli.example import INVOICES, MAILS, NEWSLETTER, PAUSED, QUEUES, REMINDERS, REPORTS, TICK_S, Example
from pinlater.cli.example_process import ExampleProcess, refusal_of
from pinlater.server.access.settings import AccessSettings
from pinlater.server.config.settings import Settings
from pinlater.server.config.store import parse_store
from pinlater.testing import InProcessService
from pinlater.tls.settings import TlsSettings
from tests.cli.conftest import COMMAND
from tests.cli.test_demo import get, press_retry

SERVE = ["serve", "--example", "--thrift-port", "0", "--http-port", "0"]
SERVE += ["--set", "console=true", "--set", "console_port=0", "--set", "telemetry.log_format=json"]
DEADLINE_S = 60


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with an example, and the address of its console."""
    command = [*COMMAND, *SERVE, "--store", f"sqlite:{folder / 'jobs.db'}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        events = (json.loads(line) for line in process.stderr)
        try:
            ready = next(entry for entry in events if entry["event"] == "the console is ready")
            yield process, urlsplit(ready["address"]).netloc
        finally:
            process.kill()


def example_of(server: subprocess.Popen[str]) -> psutil.Process:
    [found] = [one for one in psutil.Process(server.pid).children() if "pinlater.cli.example" in one.cmdline()]
    return found


def states(console: str) -> dict[str, Counter[str]]:
    """The jobs of each queue by state."""
    found: dict[str, Counter[str]] = {}
    for queue in get(console, "/v1/stats")["queues"]:
        counts: Counter[str] = Counter()
        for one in queue["priorities"]:
            counts.update(due=one["pending"] - one["future"], scheduled=one["future"], running=one["in_progress"])
            counts.update(succeeded=one["succeeded"], failed=one["failed"], retried=one["retried_total"])
        counts["paused"] = queue["paused"]
        found[queue["queue"]] = counts
    return found


def wait_for(console: str, *wanted: tuple[str, str]) -> None:
    """Until each of these queues has had something of the state beside it."""
    missing, deadline = set(wanted), time.monotonic() + DEADLINE_S
    while missing:
        assert time.monotonic() < deadline, missing
        now = states(console)
        missing -= {(queue, state) for queue, state in missing if queue in now and now[queue][state]}
        time.sleep(0.05)


def test_its_queues_have_jobs_of_every_state_and_failed_ones_can_be_retried(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, console):
        wait_for(
            console,
            *((MAILS, "succeeded"), (REPORTS, "running"), (REMINDERS, "scheduled")),
            *((NEWSLETTER, "due"), (PAUSED, "paused"), (INVOICES, "retried"), (INVOICES, "failed")),
        )
        assert set(states(console)) == set(QUEUES)
        [job, *_] = get(console, f"/v1/queues/{INVOICES}/jobs?state=failed")["jobs"]
        assert job["error_type"] in ("ConnectionRefusedError", "LookupError")
        press_retry(console, job["descriptor"])
        deadline = time.monotonic() + DEADLINE_S
        while get(console, f"/v1/jobs/{job['descriptor']}")["state"] != "succeeded":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        example = example_of(server)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert not example.is_running()


def test_it_ends_when_the_server_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path) as (server, _):
        example = example_of(server)
        server.kill()
        psutil.wait_procs([example], timeout=DEADLINE_S)
        assert not example.is_running() or example.status() == psutil.STATUS_ZOMBIE


async def test_what_it_keeps_is_bounded(service: InProcessService) -> None:
    """For twenty minutes: failed jobs are kept for ten."""
    step_s = 20.0
    most: Counter[str] = Counter()
    async with service.async_client() as client:
        example = Example(client)
        await example.prepare()
        with service.serving(example.worker):
            for step in range(60):
                for tick in range(int(step_s / TICK_S)):
                    await example.enqueue(step * int(step_s / TICK_S) + tick)
                await service.run_until_idle(raise_errors=False, concurrency=16)
                service.clock.advance(seconds=step_s)
                for queue in service.client.queue_stats():
                    stored = sum(queue.total(state) for state in ("pending", "in_progress", "succeeded", "failed"))
                    most[queue.queue] = max(most[queue.queue], stored)
    stats = {queue.queue: queue for queue in service.client.queue_stats()}
    assert set(most) == set(QUEUES)
    assert max(most.values()) < 400
    assert stats[NEWSLETTER].total("pending") == QUEUES[NEWSLETTER].max_backlog
    assert 0 < stats[INVOICES].total("failed") < stats[INVOICES].total("failed_total")


async def test_without_a_worker_its_backlog_is_bounded(service: InProcessService) -> None:
    async with service.async_client() as client:
        example = Example(client)
        await example.prepare()
        for tick in range(600):
            await example.enqueue(tick)
        for queue in service.client.queue_stats():
            assert queue.total("pending") <= (QUEUES[queue.queue].max_backlog or 0)


async def test_a_queue_that_was_deleted_gets_no_jobs_and_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with InProcessService(admin_password="open sesame") as service:
        async with service.async_client() as client:
            example = Example(client)
            await example.prepare()
            await client.delete_queue(MAILS, "open sesame")
            await example.enqueue(0)
            assert {queue.queue: queue.total("pending") > 0 for queue in service.client.queue_stats()} == dict.fromkeys(
                set(QUEUES) - {MAILS}, True
            )


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessService]:
    """Tasks take no time in it."""

    async def no_time(seconds: float) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(demo_tasks, "sleep", no_time)
    with InProcessService() as service:
        yield service


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"store": parse_store("redis://db.example/0")}, "other servers may share the store redis://db.example"),
        ({"processes": 2}, "2 processes"),
        ({"access": AccessSettings(tokens_file=Path("tokens.json"))}, "access control"),
        ({"tls": TlsSettings(certificate_file=Path("server.pem"))}, "TLS"),
    ],
)
def test_some_servers_can_not_have_an_example(settings: dict[str, Any], reason: str) -> None:
    assert refusal_of(Settings()) is None
    assert reason in str(refusal_of(replace(Settings(), **settings)))


def test_an_example_without_a_server_ends_with_one_line() -> None:
    command = [sys.executable, "-m", "pinlater.cli.example", "127.0.0.1:1"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the example can't run: ")


@pytest.mark.parametrize(
    ("program", "line"), [("false", "the example has ended"), ("/no/such", "the example does not")]
)
async def test_an_example_that_ends_is_a_warning(
    program: str, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(example_process, "this_program", lambda _: [program])
    example = ExampleProcess(Settings(), asyncio.Event())
    example.start(9010)
    await example.end()
    assert (caplog.records[-1].levelno, caplog.records[-1].message[: len(line)]) == (logging.WARNING, line)
