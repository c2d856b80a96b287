"""`pinlater worker` with real processes: several under a supervisor, signals, crashes, recycling, reloading, probes, logs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import COMMAND, PASSWORD, Pinlater
from tests.databases.ports import free_port

MODULE = """
import asyncio, logging, os, signal, subprocess, time
from pinlater import Worker

worker = Worker()
VERSION = {version}

@worker.task("{queue}", attempts=20)
async def run(what: str) -> None:
    os.write(1, b"ran %b %d %d\\n" % (what.encode(), os.getpid(), VERSION))  # a whole line: other processes write here, too
    if what == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "program":
        os.write(1, b"program %d\\n" % subprocess.Popen(["sleep", "600"]).pid)
    if what == "long":
        await asyncio.Event().wait()
    if what == "block":
        time.sleep(600)
    if what == "until-told":
        while not os.path.exists("told"):
            await asyncio.sleep(0.02)
    if what == "log":
        logging.getLogger("shop").warning("hello from the handler")

@worker.task("{queue}", process=True)
def apart() -> None:
    logging.getLogger("shop").warning("hello from a process")
"""


class Workers:
    """`pinlater worker` in a folder of its own, ended with the test."""

    def __init__(self, folder: Path, pinlater: Pinlater, queue: str) -> None:
        self.folder = folder
        self.queue = queue
        self._pinlater = pinlater
        self._processes: list[subprocess.Popen[str]] = []
        self.write()

    def write(self, version: int = 1) -> None:
        """The module of the worker."""
        (self.folder / "shop.py").write_text(MODULE.format(queue=self.queue, version=version))

    def change_queue(self, queue: str) -> None:
        """The worker's tasks are of another queue."""
        self.queue = queue
        self.write()

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Its output goes to `out`, its log to `log`."""
        with (self.folder / "out").open("a") as out, (self.folder / "log").open("a") as log:
            process = subprocess.Popen(
                [*COMMAND, "worker", "shop:worker", "--log-format", "json", *options],
                cwd=self.folder, env=os.environ | {"PINLATER_SERVERS": self._pinlater.address}, stdout=out, stderr=log, text=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def enqueue(self, *what: str) -> None:
        """One job each."""
        bodies = [word for one in what for word in ("--body", json.dumps({"what": one}))]
        claim = ("--claim-timeout", "5s")  # a killed process may have been answered with a job
        self._pinlater.ok("job", "enqueue", self.queue, *bodies, "--header", "pinlater-task=run", *claim)

    def ran(self, what: str) -> list[tuple[int, int]]:
        """Process and version of each run."""
        lines = [line.split() for line in (self.folder / "out").read_text().splitlines()]
        return [(int(line[2]), int(line[3])) for line in lines if line[:2] == ["ran", what]]

    def logged(self, text: str) -> list[dict[str, Any]]:
        """Log lines with that text in their event."""
        entries = []
        for line in (self.folder / "log").read_text().splitlines():
            with contextlib.suppress(ValueError):
                entries.append(json.loads(line))
        return [entry for entry in entries if text in entry.get("event", "")]  # a command's error has none

    def stats(self) -> dict[str, Any]:
        """The queue's numbers."""
        (found,) = self._pinlater.ok("queue", "stats", self.queue, "--json").json["queues"]
        return dict(found)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for place in Path("/proc").glob("[0-9]*/cwd"):  # theirs would give their jobs an hour
            with contextlib.suppress(OSError):
                if place.readlink() == self.folder:
                    os.kill(int(place.parent.name), signal.SIGKILL)


@pytest.fixture
def workers(tmp_path: Path, pinlater: Pinlater, queue: str) -> Iterator[Workers]:
    """No worker yet."""
    made = Workers(tmp_path, pinlater, queue)
    yield made
    made.close()


def wait_for(ask: Callable[[], Any], what: str = "", seconds: float = 40) -> Any:
    """Polls until it is true."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, what or "waited in vain"
        time.sleep(0.02)
    return answer


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def get(port: int, path: str) -> tuple[int, str]:
    """(0, "") without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def test_the_applications_own_logs_appear_at_the_level_asked_for(workers: Workers) -> None:
    with (workers.folder / "shop.py").open("a") as module:
        module.write("logging.getLogger('shop').info('loaded')\nlogging.getLogger('quiet').setLevel('ERROR')\n")
        module.write("logging.getLogger('quiet').info('loaded quietly')\nlogging.getLogger('shop').debug('details')\n")
    process = workers.start()
    wait_for(lambda: workers.logged("worker started"))
    assert len(workers.logged("loaded")) == 1
    assert workers.logged("details") == []
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert [entry for entry in workers.logged("") if entry["level"] not in ("info", "debug")] == []


def test_with_the_level_debug_the_applications_debug_lines_appear(workers: Workers) -> None:
    with (workers.folder / "shop.py").open("a") as module:
        module.write("logging.getLogger('shop').debug('details of the shop')\n")
    process = workers.start("--log-level", "debug")
    wait_for(lambda: workers.logged("worker started"))
    assert [(entry["level"], entry["logger"]) for entry in workers.logged("details of the shop")] == [("debug", "shop")]
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_processes_share_the_work_answer_probes_as_one_and_stop_in_order(workers: Workers) -> None:
    port = free_port()
    supervisor = workers.start("--processes", "2", "--health-port", str(port), "--grace", "100ms", "--concurrency", "1")
    wait_for(lambda: get(port, "/readyz")[0] == 200)
    workers.enqueue("long", "long")
    wait_for(lambda: len(workers.ran("long")) == 2)
    pids = {pid for pid, _ in workers.ran("long")}
    assert pids == set(children_of(supervisor))
    page = get(port, "/metrics")[1]
    assert page.count("# TYPE pinlater_worker_jobs_running gauge") == 1
    for number in (0, 1):
        assert f'pinlater_worker_jobs_running{{process="{number}"}} 1' in page
        assert f'pinlater_worker_process_starts_total{{process="{number}"}} 1' in page
    assert get(port, "/healthz") == (200, "ok\n")
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(30) == 0
    assert not any(alive(pid) for pid in pids)
    assert (workers.stats()["pending"], workers.stats()["in_progress"]) == (2, 0)


def test_a_second_signal_releases_the_running_jobs_of_all_processes(workers: Workers) -> None:
    supervisor = workers.start("--processes", "2", "--grace", "1h", "--concurrency", "1")
    workers.enqueue("long", "long")
    wait_for(lambda: len(workers.ran("long")) == 2)
    supervisor.send_signal(signal.SIGINT)
    wait_for(lambda: all(alive(pid) for pid, _ in workers.ran("long")))
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(30) == 0
    assert (workers.stats()["pending"], workers.stats()["in_progress"]) == (2, 0)


def test_a_signal_that_also_reaches_the_processes_lets_running_jobs_finish(workers: Workers) -> None:
    supervisor = workers.start("--processes", "2", "--grace", "1h", "--concurrency", "1")
    workers.enqueue("until-told", "until-told")
    wait_for(lambda: len(workers.ran("until-told")) == 2)
    for pid in children_of(supervisor):
        os.kill(pid, signal.SIGTERM)
    supervisor.send_signal(signal.SIGTERM)
    wait_for(lambda: workers.stats()["in_progress"] == 2)
    (workers.folder / "told").touch()
    assert supervisor.wait(30) == 0
    assert workers.stats()["succeeded"] == 2


def test_a_process_that_dies_is_replaced_and_its_programs_end_with_it(workers: Workers) -> None:
    workers.start("--processes", "1")
    workers.enqueue("program")
    program = int(
        wait_for(lambda: re.search(r"^program (\d+)$", (workers.folder / "out").read_text(), re.MULTILINE))[1]
    )
    ((first, _),) = workers.ran("program")
    assert alive(program)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not alive(program))
    workers.enqueue("two")
    ((second, _),) = wait_for(lambda: workers.ran("two"))
    assert second != first
    assert "was ended by SIGKILL; starts again in" in wait_for(lambda: workers.logged("process 0"))[0]["event"]


def test_a_killed_supervisor_leaves_no_orphans_and_their_jobs_are_given_back(workers: Workers) -> None:
    supervisor = workers.start("--processes", "2", "--grace", "100ms", "--concurrency", "1")
    workers.enqueue("long", "long")
    wait_for(lambda: len(workers.ran("long")) == 2)
    supervisor.kill()
    wait_for(lambda: not any(alive(pid) for pid, _ in workers.ran("long")))
    assert (workers.stats()["pending"], workers.stats()["in_progress"]) == (2, 0)


@pytest.mark.thorough  # twenty seconds
def test_a_process_that_can_not_obey_ends_when_its_supervisor_is_gone(workers: Workers) -> None:
    """Its event loop is blocked, so that an order to stop changes nothing."""
    supervisor = workers.start("--processes", "1", "--grace", "100ms")
    workers.enqueue("block")
    [(pid, _)] = wait_for(lambda: workers.ran("block"))
    supervisor.kill()
    wait_for(lambda: not alive(pid), seconds=60)
    assert workers.logged("the supervisor is gone: stopping")
    assert workers.logged("the worker did not stop in time; exiting")


def test_a_recycled_worker_ends_with_its_code_and_a_supervisor_starts_the_next(workers: Workers) -> None:
    workers.enqueue("a", "a", "a")
    alone = workers.start("--recycle-jobs", "2", "--concurrency", "1")
    assert alone.wait(40) == 75
    assert len(workers.ran("a")) == 2
    workers.enqueue("a", "a", "a")
    workers.start("--processes", "1", "--recycle-jobs", "2", "--concurrency", "1")
    wait_for(lambda: len(workers.ran("a")) == 6)
    assert len({pid for pid, _ in workers.ran("a")}) == 3
    assert wait_for(lambda: workers.logged("ended with exit code 75"))


def test_a_change_of_the_program_starts_it_anew_even_where_it_was_broken(workers: Workers) -> None:
    workers.start("--reload", "--grace", "1h")
    workers.enqueue("long")
    wait_for(lambda: workers.ran("long"))
    (workers.folder / "shop.py").write_text("this is no Python")
    wait_for(lambda: workers.logged("waits for a change"))
    for name in ("notes.txt", ".venv/a.py", "node_modules/b.py", "__pycache__/c.py"):  # no part of the program
        (workers.folder / name).parent.mkdir(exist_ok=True)
        (workers.folder / name).write_text("1")
    workers.write(version=22)
    wait_for(lambda: any(version == 22 for _, version in workers.ran("long")))
    assert workers.stats()["failed"] == 0
    told = [entry["event"] for entry in workers.logged("files changed, restarting: ")]
    assert {word for line in told for word in line.partition(": ")[2].split(", ")} == {str(workers.folder / "shop.py")}


@pytest.mark.parametrize("application", ["nowhere:worker", "shop", "shop:VERSION"])
def test_the_supervisor_refuses_an_application_that_names_no_worker(workers: Workers, application: str) -> None:
    done = subprocess.run(
        [*COMMAND, "worker", application, "--processes", "3"], cwd=workers.folder, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("error: ")) == (2, 1)


def test_a_port_for_probes_that_is_taken_is_said(workers: Workers) -> None:
    port = free_port()
    workers.start("--health-port", str(port))
    wait_for(lambda: get(port, "/readyz")[0] == 200)
    for more in ((), ("--processes", "1")):
        second = workers.start("--health-port", str(port), *more)
        assert second.wait(40) == 1
    assert "address already in use" in (workers.folder / "log").read_text()


def test_log_lines_say_which_job_they_are_about_in_threads_and_processes_too(
    workers: Workers, pinlater: Pinlater
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    workers.start("--processes", "1")
    for task, body in (("run", '{"what": "log"}'), ("apart", "{}")):
        pinlater.ok(
            "job", "enqueue", workers.queue, "--body", body, "--header", f"pinlater-task={task}",
            "--header", f"traceparent={trace}",
        )  # fmt: skip
    for text, task in (("from the handler", "run"), ("from a process", "apart")):
        (entry,) = wait_for(partial(workers.logged, text))
        assert (entry["logger"], entry["level"], entry["queue"]) == ("shop", "warning", workers.queue)
        assert (entry["task"], entry["attempt"], entry["trace"], entry["process_number"]) == (task, 1, trace, 0)
        assert entry["job"].startswith(workers.queue)


def test_missing_queues_are_created_at_the_start(workers: Workers, pinlater: Pinlater, queue: str) -> None:
    """By every process of a supervisor alike."""
    workers.change_queue(f"{queue}_new")
    workers.start("--processes", "2")
    wait_for(lambda: bool(workers.logged(f"queue {workers.queue}: created, since it did not exist")))
    workers.enqueue("x")
    wait_for(lambda: len(workers.ran("x")) == 1)
    assert workers.logged("can't claim") == []


def test_a_worker_without_its_queue_says_how_to_create_it(workers: Workers, pinlater: Pinlater, queue: str) -> None:
    """Once, and that it is there when it is there."""
    pinlater.ok("queue", "delete", queue, "--password-stdin", stdin=f"{PASSWORD}\n".encode())
    workers.start()
    wait_for(lambda: bool(workers.logged("can't claim")))
    [entry] = workers.logged("can't claim")
    assert entry["event"] == (
        f"queue {queue}: can't claim, retrying: Queue not found: {queue}; it was deleted within the last day, and tasks do not "
        f"create it again so soon; create it: `pinlater queue create {queue}`"
    )
    pinlater.ok("queue", "create", queue)
    wait_for(lambda: bool(workers.logged("it exists now")))


CHAIN = """
import os
from pinlater import Worker

worker = Worker("127.0.0.1:1")

@worker.task("{queue}", default=True)
async def start() -> None:
    await apart.enqueue_async()

@worker.task("{queue}", process=True)
def apart() -> None:
    end.enqueue()

@worker.task("{queue}")
def end() -> None:
    os.write(1, b"ran end %d 1\\n" % os.getpid())
"""


def test_all_that_a_worker_enqueues_goes_to_the_server_of_the_command(workers: Workers, pinlater: Pinlater) -> None:
    (workers.folder / "shop.py").write_text(CHAIN.format(queue=workers.queue))
    pinlater.ok("job", "enqueue", workers.queue, "--body", "{}")
    workers.start("--processes", "2", "--server", pinlater.address)
    wait_for(lambda: workers.ran("end"))
