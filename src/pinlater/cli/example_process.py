"""Runs the live example as a process beside the server, and ends it with the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from asyncio.subprocess import PIPE, Process

from pinlater.cli.example import QUEUES
from pinlater.server.config.settings import Settings
from pinlater.server.main.console_process import local_address, this_program

logger = logging.getLogger(__name__)

_STOP_S = 3.0


def refusal_of(settings: Settings) -> str | None:
    """Returns why a server with these settings can't have an example, or None if it can."""
    if settings.store.is_sharded:
        return f"other servers may share the store {settings.store}: use sqlite:PATH or memory:"
    if settings.processes > 1:
        return f"not for a server with {settings.processes} processes"
    if settings.access.tokens_file is not None:
        return "not for a server with access control"
    if settings.tls.certificate_file is not None:
        return "not for a server with TLS"
    return None


class ExampleProcess:
    """`stopping`: is set when the server begins to stop."""

    def __init__(self, settings: Settings, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        self._running: asyncio.Task[None] | None = None

    def start(self, thrift_port: int) -> None:
        """Starts it and returns at once. `thrift_port`: where the server listens."""
        self._running = asyncio.create_task(self._run(local_address(self._settings, thrift_port)))

    async def end(self) -> None:
        """Waits for its end. Called when the server has stopped."""
        if self._running is not None:
            await self._running

    async def _run(self, address: str) -> None:
        try:
            process = await asyncio.create_subprocess_exec(
                *this_program("pinlater.cli.example"), address, stdin=PIPE, start_new_session=True
            )
        except OSError as error:
            logger.warning("the example does not run", extra={"reason": str(error)})
            return
        logger.info("the example runs", extra={"queues": list(QUEUES)})
        stopping, ended = (asyncio.create_task(one) for one in (self._stopping.wait(), process.wait()))
        await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
        if not self._stopping.is_set():
            logger.warning("the example has ended", extra={"exit_code": process.returncode})
        stopping.cancel()
        await _stop(process)


async def _stop(process: Process) -> None:
    """The process ends with its standard input, or is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
