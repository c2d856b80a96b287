"""The worker's event loop: abandoned threads don't keep the process from ending."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pinlater.worker._process.event_loop import DaemonThreads, run


def test_to_thread_gives_results_and_errors_and_uses_its_threads_again() -> None:
    names: list[str] = []

    async def main() -> None:
        names.extend([await asyncio.to_thread(lambda: threading.current_thread().name) for _ in range(3)])
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        assert sorted(await asyncio.gather(*(asyncio.to_thread(int, n) for n in range(100)))) == list(range(100))

    run(main())
    assert len(set(names)) < 3


def test_the_loop_ends_while_a_function_in_a_thread_runs() -> None:
    gate, began = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        gate.wait()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, hang)
        await asyncio.to_thread(began.wait)

    run(main())
    left = [thread for thread in threading.enumerate() if thread.name.startswith("pinlater-to-thread")]
    assert all(thread.daemon for thread in left)
    assert len(left) >= 1
    gate.set()
    for thread in left:
        thread.join(10)
        assert not thread.is_alive()


def test_a_function_cancelled_before_a_thread_was_free_does_not_run() -> None:
    ran: list[int] = []
    gate = threading.Event()
    threads = DaemonThreads()
    busy = [threads.submit(gate.wait) for _ in range(threads._max_workers)]
    late = threads.submit(ran.append, 1)
    assert late.cancel()
    gate.set()
    for future in busy:
        assert future.result(10)
    assert threads.submit(lambda: 7).result(10) == 7
    threads.shutdown()
    assert ran == []
