"""The fixtures, and what importing the package's test helpers brings along."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pinlater import AsyncClient, Client, Worker
from pinlater.testing import InProcessService, RealServer, TurnedClock
from tests.house.test_imports import loaded_by


def test_service_and_clock_belong_together(pinlater_service: InProcessService, pinlater_clock: TurnedClock) -> None:
    assert pinlater_clock is pinlater_service.clock
    assert pinlater_service.client.queue_names() == []


async def test_the_real_server_runs_a_workers_jobs(pinlater_server: RealServer) -> None:
    done: list[str] = []
    async with AsyncClient(pinlater_server.address) as client:
        worker = Worker(client)

        @worker.task("plugin")
        async def note(name: str, again: bool = False) -> None:
            done.append(name)
            if again:
                await note.enqueue_async(f"{name} again")

        await worker.create_queues_async()
        await note.enqueue_many_async([note.job("a", again=True), note.job("b")])
        await note.using(delay=3600).enqueue_async("later")
        await worker.run_until_idle()
        assert sorted(done) == ["a", "a again", "b"]
        assert await client.count("plugin", future=True) == 1


def test_the_real_server_is_the_same_for_the_whole_session(pinlater_server: RealServer) -> None:
    with Client(pinlater_server.address) as client:
        client.create_queue("session")
        assert client.server_info().store_kind == "sqlite"


@pytest.mark.parametrize("statement", ["import pinlater", "import pinlater.testing"])
def test_nothing_imports_pytest_but_the_plugin(statement: str) -> None:
    """Production has no pytest, and a test runner of another kind needs none."""
    assert "pytest" not in loaded_by(statement)


def test_the_service_needs_the_base_installation_only() -> None:
    """Tests of producers need no part of the server's extra."""
    run = "with pinlater.testing.InProcessService() as s: s.client.create_queue('q'); s.client.enqueue('q', [b''])"
    loaded = loaded_by(f"import pinlater.testing\n{run}")
    assert [name for name in ("uvloop", "prometheus_client", "re2", "h11") if name in loaded] == []


def test_a_user_gets_the_fixtures_by_one_line(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pinlater.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(
        "def test_it(pinlater_service, pinlater_clock): pinlater_clock.advance(hours=1)\n"
    )
    done = pytest_in(tmp_path)
    assert done.returncode == 0, json.dumps([done.stdout, done.stderr])


def pytest_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a user's tests."""
    quiet = ["-q", "-W", "error", "--strict-markers", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:randomly"]
    command = [sys.executable, "-m", "pytest", *quiet, *options, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_test_reaches_a_real_server_by_accident(tmp_path: Path) -> None:
    """Not from a client made before the tests, in a thread or on a loop; own servers may be reached, and any by marked tests."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["pinlater.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(_GUARDED)
    done = pytest_in(tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1].split(" in ")[0]) == (0, "6 passed"), done.stdout


_GUARDED = """
import asyncio
import sys
import pytest
from pinlater import AsyncClient, Client, Worker
from pinlater.client.errors import ServerUnreachable
from pinlater.testing import RealServerReached

client = Client("127.0.0.1:1", wait_for_servers=False)
worker = Worker("127.0.0.1:1")


@worker.task("q")
def task(): ...


def test_a_client_in_a_thread():
    with pytest.raises(RealServerReached, match="127.0.0.1:1.*pinlater_service.*pinlater_real_server"):
        client.queue_names()


def test_a_client_on_a_loop():
    async def ask():
        async with AsyncClient("127.0.0.1:1") as client:
            await client.queue_names()

    with pytest.raises(RealServerReached):
        asyncio.run(ask())


def test_a_task_that_is_not_redirected(pinlater_service):
    with pytest.raises(RealServerReached):
        task.enqueue()
    with pinlater_service.serving(worker):
        task.enqueue()


def test_clients_are_replaced_as_the_message_says(pinlater_service, monkeypatch):
    with pytest.raises(RealServerReached) as told:
        client.queue_names()
    hint = "lambda *_, **__: pinlater_service."
    assert hint + "async_client()" in str(told.value) and hint + "new_client()" in str(told.value)
    here = sys.modules[__name__]
    monkeypatch.setattr(here, "Client", lambda *_, **__: pinlater_service.new_client())
    monkeypatch.setattr(here, "AsyncClient", lambda *_, **__: pinlater_service.async_client())

    async def ask():
        async with AsyncClient("h:9010", source="app") as own:
            return await own.queue_names()

    with Client("h:9010", source="app") as own:
        own.create_queue("q")
    assert asyncio.run(ask()) == pinlater_service.client.queue_names() == ["q"]


def test_a_server_of_the_run(pinlater_server):
    with Client(pinlater_server.address) as client:
        assert client.queue_names() == []


@pytest.mark.pinlater_real_server
def test_a_marked_test():
    with pytest.raises(ServerUnreachable):
        client.queue_names()
"""
