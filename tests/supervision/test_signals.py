"""Signals to child processes of an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading

import pytest

from pinlater.supervision import signals


async def _child(program: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program)


async def test_a_signal_to_a_process_that_has_just_ended_leaves_its_exit_code_to_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sent = threading.Event()
    waitpid = os.waitpid

    def waits_until_sent(process_id: int, flags: int) -> tuple[int, int]:
        assert sent.wait(60)
        return waitpid(process_id, flags)

    monkeypatch.setattr(os, "waitpid", waits_until_sent)
    process = await _child("raise SystemExit(3)")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - the loop must not notice
    signals.send(process, signal.SIGTERM)
    sent.set()
    assert await process.wait() == 3
    assert "Unknown child process" not in caplog.text
    signals.send(process, signal.SIGTERM)  # does nothing


async def test_a_running_process_gets_the_signal() -> None:
    process = await _child("import signal; signal.pause()")
    signals.send(process, signal.SIGKILL)
    assert await process.wait() == -signal.SIGKILL
