"""Tasks that run in processes, at the top of a module so that a child can import them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import stat
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from pinlater.client import Checkpoint
from pinlater.worker import Reject, Snooze, Worker, current_job

worker = Worker("127.0.0.1:1")


@worker.task("p", process=True, attempts=5)
def note(folder: str) -> None:
    with open(os.path.join(folder, "pids"), "a") as file:  # noqa: PTH123, PTH118 - plain on purpose
        file.write(f"{os.getpid()} {current_job().attempt}\n")


@worker.task("p", process=True, attempts=1)
def enqueue_a_note(folder: str) -> None:
    note.enqueue(folder)


@worker.task("p", process=True, attempts=1)
def tell_cron_time() -> None:
    raise Reject(str(current_job().cron_time))


@worker.task("p", process=True)
def put_off(seconds: int) -> Snooze:
    return Snooze(seconds)


@worker.task("p", process=True, attempts=9)
def die(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "exit":
        os._exit(3)
    elif how == "close":
        os.closerange(3, 1000)
    elif how == "fork":
        os._exit(0 if os.fork() else 1)


@worker.task("p", process=True, attempts=1, time_limit=0.3)
def spin() -> None:
    while True:
        pass


@worker.task("p", process=True, attempts=3)
def step(done: int) -> None:
    job = current_job()
    if done < 2:
        job.checkpoint({"done": done + 1})
        raise ValueError(f"after {done}")
    job.progress(1, "all done")


@worker.task("p", process=True, attempts=3)
def report_until_lost() -> None:
    while True:
        current_job().progress(0.5)
        time.sleep(0.01)


@worker.task("p", process=True, attempts=3)
def refuse() -> None:
    raise Reject("not this one")


@worker.task("p", process=True)
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@worker.task("p", process=True, attempts=3)
def fork_and_return(folder: str) -> None:
    child = os.fork()
    with open(os.path.join(folder, "pids"), "a") as file:  # noqa: PTH123, PTH118 - plain on purpose
        file.write(f"{os.getpid()}\n")
    if child:
        os.waitpid(child, 0)


@worker.task("p", process=True, attempts=1)
def leave_a_daemon_and_die(folder: str) -> None:
    if child := os.fork():
        with open(os.path.join(folder, "daemon"), "w") as file:  # noqa: PTH123, PTH118
            file.write(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    signal.alarm(60)
    signal.pause()


@worker.task("p", process=True, attempts=1)
def die_in_the_middle_of_a_message(folder: str) -> None:
    """A fork keeps the pipe to the worker open."""
    if child := os.fork():
        with open(os.path.join(folder, "daemon"), "w") as file:  # noqa: PTH123, PTH118
            file.write(str(child))
        write_into_the_pipe(b"\x00\x00\x10\x00half".hex())
        os.kill(os.getpid(), signal.SIGKILL)
    signal.alarm(60)
    signal.pause()


@worker.task("p", process=True, attempts=1)
def write_into_the_pipe(data: str) -> None:
    """Into that to the worker, the only socket here."""
    for descriptor in range(3, 100):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, bytes.fromhex(data))


@worker.task("p", process=True, attempts=1, time_limit=None)
def stop_in_the_middle_of_a_message() -> None:
    write_into_the_pipe(b"\x00\x00\x10\x00half".hex())
    signal.pause()


@worker.task("p", process=True, attempts=2)
def checkpoint_and_die(done: int) -> None:
    """Without reading the answer to its checkpoint."""
    if done:
        return
    message = pickle.dumps(Checkpoint(current_job().descriptor, current_job().job.token, new_body=b'{"done":1}'))
    write_into_the_pipe((len(message).to_bytes(4) + message).hex())
    os.kill(os.getpid(), signal.SIGKILL)


@worker.task("p", process=True, attempts=2)
def large(data: str) -> int:
    return len(data)


@worker.task("p", process=True, attempts=2)
def raise_what_is_no_exception(kind: str) -> None:
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "base": BaseException("base")}[kind]


@worker.task("p", process=True, attempts=1)
def note_span(folder: str) -> None:
    """The current span, and the headers of a job enqueued here."""
    from opentelemetry import trace

    span = trace.get_current_span().get_span_context()
    carried = (note_span.job(folder).headers or {}).get("traceparent", "")
    with open(os.path.join(folder, "span"), "w") as file:  # noqa: PTH123, PTH118 - plain on purpose
        file.write(f"{span.trace_id:x} {span.span_id:x} {carried}")


def told() -> tuple[str, str, str]:
    """The attempt, a header, and whether the time limit is a minute away."""
    job = current_job()
    left_ms = job.time_left_ms or 0
    return str(job.attempt), job.headers["tenant"], str(50_000 < left_ms <= 60_000 and job.deadline_ms is not None)


def fail_once() -> None:
    if current_job().attempt == 1:
        raise ValueError("once more")


@worker.task("p", process=True, attempts=3, time_limit=60)
def tell(folder: str) -> None:
    with open(os.path.join(folder, "told"), "a") as file:  # noqa: PTH123, PTH118 - plain on purpose
        file.write(",".join(told()) + "\n")
    fail_once()


@worker.task("p", process=True, attempts=1)
def fail(how: str) -> None:
    if how == "checkpoint":
        current_job().checkpoint({"other": 1})
    if how == "lines":
        raise ValueError("a message\nof two lines")
    _ = 1 / 0


def start_programs(notes: str) -> None:
    """A program with one of its own, and a process of `multiprocessing`. Notes their numbers and this one's, and waits for ever."""
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    sleep = int(shell.stdout.readline())
    forked = multiprocessing.get_context("fork").Process(target=signal.pause)
    forked.start()
    written = Path(notes + ".new")
    written.write_text(f"{os.getpid()} {shell.pid} {sleep} {forked.pid}")
    written.rename(notes)
    signal.pause()


@worker.task("p", process=True, attempts=1, time_limit=6)
def start_programs_for_a_while(notes: str) -> None:
    start_programs(notes)


@worker.task("p", process=True, attempts=1, claim_timeout=1)
def start_programs_for_ever(notes: str) -> None:
    start_programs(notes)


@worker.task("p", process=True, attempts=1)
def use_processes() -> None:
    with multiprocessing.Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
    with ProcessPoolExecutor(1) as executor:
        assert executor.submit(abs, -1).result() == 1
