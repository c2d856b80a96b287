"""Counts what the client and the worker do for one job, what it costs to import them, and how they are knit: rows of `make counts`."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src/pinlater"
SDK = ("client", "worker")
TRIES, JOBS = 30, 600
THE_BASE = "import asyncio, thrift.Thrift, thrift.protocol.TBinaryProtocol, thrift.transport.TTransport"
# What users give: the arguments of these are options, with names.
GIVEN_BY_USERS = {"ClientBase", "Worker"}


class CallsOfAJob(NamedTuple):
    """The calls by function."""

    calls: Counter[str]

    def __str__(self) -> str:
        """How many, and in how many modules."""
        return f"{self.calls.total()} in {len({name.partition(':')[0] for name in self.calls})}"


class _Profiler:
    """Counts the Python calls of our own code in the threads that it is set for. A coroutine that is resumed counts as a call."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._root = f"{SOURCE}/"

    def event(self, frame: FrameType, event: str, _: Any) -> None:
        """An event of the profiler."""
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(self._root):
            self.calls[f"{code.co_filename.removeprefix(self._root)}:{code.co_qualname}"] += 1

    def taken(self) -> Counter[str]:
        """The calls since it was asked last."""
        calls, self.calls = self.calls, Counter()
        return calls


def one_task_enqueue() -> CallsOfAJob:
    """A task's own `enqueue` from plain code, on a connection that is there. The one with the fewest calls of some."""
    from pinlater import Worker
    from pinlater.testing.real_server import RealServer

    profiler, found = _Profiler(), []
    with tempfile.TemporaryDirectory() as folder, RealServer(folder) as server:
        worker = Worker(server.address)

        @worker.task("q")
        def task(name: str) -> None: ...

        task.enqueue("a")
        for _ in range(TRIES):
            profiler.taken()
            sys.setprofile(profiler.event)
            task.enqueue("a")
            sys.setprofile(None)
            found.append(CallsOfAJob(profiler.taken()))
    return min(found, key=lambda one: one.calls.total())


def one_job_run() -> CallsOfAJob:
    """A coroutine that does nothing, of a queue with many jobs: all calls in all threads of the worker, by the number of its jobs."""
    from pinlater import Worker
    from pinlater.testing.real_server import RealServer

    profiler, left = _Profiler(), [JOBS]
    with tempfile.TemporaryDirectory() as folder, RealServer(folder) as server:
        worker = Worker(server.address)

        @worker.task("q")
        async def task(name: str) -> None:
            left[0] -= 1
            if not left[0]:
                worker.request_stop()

        task.enqueue_many([task.job("a") for _ in range(JOBS)])
        threading.setprofile(profiler.event)
        runner = threading.Thread(target=lambda: asyncio.run(worker.run_async()))
        runner.start()
        threading.setprofile(None)
        runner.join()
    # A function that fewer than half of the jobs call is none of theirs: periodic work, or that of a claim.
    return CallsOfAJob(Counter({name: round(n / JOBS) for name, n in profiler.calls.items() if 2 * n >= JOBS}))


# --- imports ------------------------------------------------------------------------------------------------------------------
def instructions(program: str) -> int | None:
    """How many instructions Python executes for a program, by cachegrind; None without it. The modules are compiled before."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)  # noqa: S603 - programs of this file
    counter = ["valgrind", "--tool=cachegrind", "--cachegrind-out-file=/dev/null"]
    try:
        ran = subprocess.run(  # noqa: S603 - the same
            [*counter, sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
    except OSError:
        return None
    found = re.search(r"I\s+refs:\s+([\d,]+)", ran.stderr)
    return None if found is None else int(found[1].replace(",", ""))


def imports() -> str:
    """The instructions of both imports over those of what they stand on, without those of a Python that imports nothing."""
    programs = ("pass", THE_BASE, "import pinlater.client", "from pinlater import Worker")
    nothing, base, client, worker = map(instructions, programs)
    if nothing is None or base is None or client is None or worker is None:
        return "valgrind is missing"
    return f"{(client - nothing) / (base - nothing):.2f}; {(worker - nothing) / (base - nothing):.2f}"


def _imported(tree: ast.Module, modules: dict[str, Path]) -> set[str]:
    """Which of the modules one imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules.keys()


def circles() -> list[str]:
    """Pairs of modules that import each other, by way of others too; each pair once, with those that only types need."""
    paths = {
        ".".join(("pinlater", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
        for package in SDK
        for path in (SOURCE / package).rglob("*.py")
    }
    reached = {name: _imported(ast.parse(path.read_text()), paths) - {name} for name, path in paths.items()}
    grows = True
    while grows:
        grows = False
        for name, names in reached.items():
            wider = names.union(*(reached[each] for each in names))
            grows = grows or wider != names
            reached[name] = wider
    return sorted(
        {
            min(names & {other for other in names if name in reached[other]})
            for name, names in reached.items()
            if name in names
        }
    )


def constructor_arguments() -> list[str]:
    """The classes of the SDK, those with the most arguments first, but for those that users make."""
    found = [
        (len(item.args.args) + len(item.args.kwonlyargs) - 1, f"{path.relative_to(SOURCE)}:{node.name}")
        for package in SDK
        for path in (SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name not in GIVEN_BY_USERS
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]
    return [f"{number} {name}" for number, name in sorted(found, reverse=True)]


def _shown(one: CallsOfAJob) -> list[str]:
    return [f"{number:4} {name}" for name, number in sorted(one.calls.items())]


SHOWN: dict[str, Callable[[], list[str]]] = {
    "task": lambda: _shown(one_task_enqueue()),
    "job": lambda: _shown(one_job_run()),
    "circles": circles,
    "constructors": constructor_arguments,
}


def rows() -> Iterator[tuple[str, str]]:
    """What is counted, and the count."""
    yield "calls of one task enqueue (sync), in modules", str(one_task_enqueue())
    yield "calls of one job run by a worker, in modules", str(one_job_run())
    yield "import of pinlater.client; of Worker: instructions over those of asyncio and thrift", imports()
    yield "circles of imports in client and worker", str(len(circles()))
    yield "constructor arguments at the worst in client and worker", constructor_arguments()[0]
