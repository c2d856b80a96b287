"""The worker as users see it: register a function for a queue, then run.

worker = Worker("127.0.0.1:9010")

@worker.handler("emails")
async def send(job: ClaimedJob) -> None:
    ...

worker.run()
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pinlater.client.async_client import AsyncClient
from pinlater.client.values import ClaimedJob
from pinlater.domain.clock import Clock, SystemClock
from pinlater.worker._consumer import Consumer
from pinlater.worker._handlers import Handler
from pinlater.worker.counts import WorkerCounts
from pinlater.worker.settings import WorkerSettings

_log = logging.getLogger("pinlater.worker")
F = TypeVar("F", bound=Callable[[ClaimedJob], Any])


class Worker:
    """Runs handlers for the jobs of one or more queues.

    `client`: where the jobs come from: addresses (as for `AsyncClient`), or a client that the caller opened and closes.
    An `async def` handler runs on the loop and must not block it; a plain function runs in a thread.
    """

    def __init__(
        self,
        client: AsyncClient | str | Sequence[str] | None = None,
        *,
        settings: WorkerSettings | None = None,
        source: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._settings = settings or WorkerSettings()
        self._source = source
        self._clock = clock or SystemClock()
        self._handlers: dict[str, Handler] = {}
        self._consumers: list[Consumer] = []
        self._stop: asyncio.Event | None = None
        self._hurry: asyncio.Event | None = None
        self.counts = WorkerCounts()

    @property
    def settings(self) -> WorkerSettings:
        """What it runs with unless `run_async` is told otherwise."""
        return self._settings

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have a handler."""
        return tuple(self._handlers)

    @property
    def functions_left_behind(self) -> int:
        """Plain functions that outlasted the grace time and still run in their threads; only the process's end stops them."""
        return sum(consumer.in_threads for consumer in self._consumers)

    def handler(self, queue: str, *, concurrency: int | None = None) -> Callable[[F], F]:
        """Registers the decorated function for the jobs of `queue`. It gets a `ClaimedJob`; returning means success."""
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1: {concurrency}")

        def register(function: F) -> F:
            if queue in self._handlers:
                raise ValueError(f"queue {queue!r} has a handler already")
            self._handlers[queue] = Handler(queue, function, concurrency)
            return function

        return register

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT; a second one hurries. Blocks.

        Where `functions_left_behind` is not 0 afterwards the interpreter waits for them at its end, unless it is ended by `os._exit`
        as `pinlater worker` does.
        """
        asyncio.run(self.run_async(handle_signals=True))

    async def run_async(
        self,
        *,
        client: AsyncClient | str | Sequence[str] | None = None,
        settings: WorkerSettings | None = None,
        queues: Sequence[str] | None = None,
        handle_signals: bool = False,
    ) -> None:
        """Runs until `request_stop`. `client`, `settings` and `queues` (a part of those registered) override the worker's own."""
        handlers = self._chosen(queues)
        stop, hurry = self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        async with contextlib.AsyncExitStack() as stack:
            if handle_signals:
                stack.enter_context(self._signals())
            source = client if client is not None else self._client
            if not isinstance(source, AsyncClient):
                source = await stack.enter_async_context(AsyncClient(source, source=self._source))
            chosen = settings or self._settings
            self._consumers = [
                Consumer(source, handler, chosen, self._clock, stop, hurry, self.counts) for handler in handlers
            ]
            _log.info("worker started", extra={"queues": ",".join(handler.queue for handler in handlers)})
            async with asyncio.TaskGroup() as group:
                for consumer in self._consumers:
                    group.create_task(consumer.run(), name=f"consumer {consumer.queue}")
            _log.info("worker stopped", extra={"left_behind": self.functions_left_behind})

    def request_stop(self) -> None:
        """Stops claiming and lets running jobs finish within the grace time; asked a second time, gives them back at once."""
        if self._stop is None or self._hurry is None:
            return
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def check(self, queues: Sequence[str] | None = None) -> None:
        """Raises ValueError where there is nothing to run, or one of `queues` has no handler."""
        self._chosen(queues)

    def _chosen(self, queues: Sequence[str] | None) -> list[Handler]:
        missing = [queue for queue in queues or () if queue not in self._handlers]
        if missing:
            raise ValueError(f"no handler for queue {missing[0]!r}; there are: {', '.join(self._handlers) or 'none'}")
        chosen = [self._handlers[queue] for queue in queues or self._handlers]
        if not chosen:
            raise ValueError("the worker has no handler: decorate a function with @worker.handler(queue)")
        return chosen

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.request_stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
