"""Worker processes: killed, suspended, and signalled once and twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinlater.client import AsyncClient, Client, JobState
from pinlater.testing import RealServer
from pinlater.worker import Task
from tests.worker import stubborn_app as app
from tests.worker.conftest import claimed, eventually, has_ended

PLACES: list[Task[..., Any]] = [app.on_loop, app.in_thread, app.in_process]


class Stubborn:
    """A worker process and its notes."""

    def __init__(self, server: str, notes: Path, grace_ms: int = 10_000) -> None:
        self._notes = notes
        environment = {
            **os.environ, "PINLATER_SERVERS": server, "STUBBORN_NOTES": str(notes), "STUBBORN_GRACE_MS": str(grace_ms),
        }  # fmt: skip
        program = "from tests.worker import stubborn_app; stubborn_app.main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def noted(self, what: str = "") -> list[str]:
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [line for line in lines if line.startswith(what)]

    def open_gate(self) -> None:
        self._notes.with_name(self._notes.name + ".gate").touch()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def send_to_all(self, number: signal.Signals) -> None:
        """Signals each process, as an init system may do."""
        for process in self.children:
            os.kill(process, number)
        os.killpg(self.process.pid, number)

    @property
    def children(self) -> list[int]:
        """Child processes and their programs."""
        return [int(number) for line in self.noted("process") for number in line.split()[1:3]]

    def all_gone(self) -> bool:
        """Whether all of its processes have ended."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return all(map(has_ended, self.children))
        return False

    async def ended(self) -> int:
        await eventually(lambda: self.process.poll() is not None, timeout_s=20)
        return self.process.returncode


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with RealServer(tmp_path_factory.mktemp("signals")) as server, Client(server.address) as client:
        client.create_queue("q")
        yield server.address


@pytest.fixture
def started(server: str, tmp_path: Path) -> Iterator[list[Stubborn]]:
    with Client(server) as client:
        for state in (JobState.PENDING, JobState.IN_PROGRESS):
            client.delete_jobs("q", state)
    all_of_them: list[Stubborn] = []
    yield all_of_them
    for one in all_of_them:
        one.process.kill()
        one.process.wait()


async def enqueue(client: AsyncClient, task: Task[..., Any], name: str, *, claim_timeout: float = 60) -> str:
    job = task.using(claim_timeout=claim_timeout, attempts=3).job(name)
    return (await client.enqueue("q", [job])).descriptors[0]


async def test_a_worker_that_is_killed_loses_nothing_and_its_processes_go_with_it(
    server: str, started: list[Stubborn], tmp_path: Path
) -> None:
    async with AsyncClient(server) as client:
        jobs = [await enqueue(client, task, task.name, claim_timeout=1) for task in PLACES]
        started.append(first := Stubborn(server, tmp_path / "first"))
        await eventually(lambda: len(first.noted("began")) == 3)
        first.send(signal.SIGKILL)
        await first.ended()
        await eventually(first.all_gone)
        started.append(second := Stubborn(server, tmp_path / "second"))
        second.open_gate()
        await eventually(lambda: _all_done(client, jobs), timeout_s=20)
    assert sorted(second.noted("began")) == [f"began {task.name} 2" for task in sorted(PLACES, key=lambda t: t.name)]
    assert first.noted("ended") == []


async def _all_done(client: AsyncClient, jobs: list[str]) -> bool:
    found = await client.lookup(jobs)
    return all(found[job].state is JobState.SUCCEEDED for job in jobs)


async def test_a_worker_suspended_beyond_its_claim_drops_the_job(
    server: str, started: list[Stubborn], tmp_path: Path
) -> None:
    """Another worker has the job by then; the server ignores the first one's report, and the first one continues."""
    async with AsyncClient(server) as client:
        job = await enqueue(client, app.on_loop, "a", claim_timeout=1)
        started.append(first := Stubborn(server, tmp_path / "first"))
        await eventually(lambda: first.noted("began a 1"))
        first.send(signal.SIGSTOP)
        second = await eventually(lambda: claimed(client), timeout_s=20)
        assert (second.descriptor, second.attempt) == (job, 2)
        first.send(signal.SIGCONT)
        other = await enqueue(client, app.in_thread, "b")
        await eventually(lambda: first.noted("began b"))
        await eventually(lambda: first.noted("let go a"))
        found = (await client.lookup([job]))[job]
        assert (found.state, found.attempts_remaining) == (JobState.IN_PROGRESS, 2)
        first.open_gate()
        await eventually(lambda: _all_done(client, [other]))
        assert (await client.lookup([job]))[job].state is JobState.IN_PROGRESS
        first.send(signal.SIGTERM)
        assert await first.ended() == 0
        assert first.noted("ended a") == []


@pytest.mark.parametrize("reaches_all", [False, True], ids=["the worker", "all its processes"])
async def test_sigterm_lets_running_jobs_finish_and_none_runs_twice(
    server: str, started: list[Stubborn], tmp_path: Path, reaches_all: bool
) -> None:
    async with AsyncClient(server) as client:
        jobs = [await enqueue(client, task, task.name) for task in PLACES]
        started.append(first := Stubborn(server, tmp_path / "first"))
        await eventually(lambda: len(first.noted("began")) == 3)
        (first.send_to_all if reaches_all else first.send)(signal.SIGTERM)
        late = await enqueue(client, app.on_loop, "late")
        first.open_gate()
        assert await first.ended() == 0
        assert await _all_done(client, jobs)
        assert len(first.noted("began")) in (3, 4)  # a claim may be under way when the signal comes
        found = (await client.lookup([late]))[late]
        assert (found.state, found.attempts_remaining) in ((JobState.PENDING, 3), (JobState.SUCCEEDED, 3))


@pytest.mark.parametrize("twice", [True, False], ids=["second signal", "grace over"])
async def test_jobs_that_do_not_finish_are_given_back_and_their_processes_end(
    server: str, started: list[Stubborn], tmp_path: Path, twice: bool
) -> None:
    async with AsyncClient(server) as client:
        jobs = [await enqueue(client, task, task.name) for task in [*PLACES, app.deaf, app.deaf_beside]]
        started.append(first := Stubborn(server, tmp_path / "first", 600_000 if twice else 100))
        await eventually(lambda: len(first.noted("began")) == 5)
        first.send(signal.SIGTERM)
        if twice:  # once the first one is through: two that wait are one
            await eventually(lambda: _polls_no_more(client))
            first.send(signal.SIGTERM)
        assert await first.ended() == 0
        found = await client.lookup(jobs)
        assert {(info.state, info.attempts_remaining) for info in found.values()} == {(JobState.PENDING, 3)}
        started.append(second := Stubborn(server, tmp_path / "second"))
        second.open_gate()
        await eventually(lambda: _all_done(client, jobs[:3]), timeout_s=20)
    assert first.noted("ended") == []


async def _polls_no_more(client: AsyncClient) -> bool:
    return not (await client.queue_stats("q"))[0].waiting_dequeues


async def test_a_task_that_closes_the_workers_descriptors_ends_the_worker_and_loses_no_job(
    server: str, started: list[Stubborn], tmp_path: Path
) -> None:
    """A thread shares them with the worker, which can't continue and must not hang."""
    async with AsyncClient(server) as client:
        job = await enqueue(client, app.close_everything, "a", claim_timeout=1)
        started.append(first := Stubborn(server, tmp_path / "first"))
        await eventually(lambda: first.noted("began a 1"))
        assert await first.ended() != 0
        started.append(Stubborn(server, tmp_path / "second"))
        await eventually(lambda: _all_done(client, [job]), timeout_s=20)
