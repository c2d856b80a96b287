"""A lane whose queue is that of its store's writer, which works in this process: when its next transaction begins, the writer takes the
waiting items of the lane as one command, and passes the answers to the callers itself. No task runs in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from pinlater.domain.errors import OutcomeUnknown, PinLaterError
from pinlater.server.sharding.joined import JoinedItems
from pinlater.server.sharding.lane_queue import Item, LaneEntry, LaneQueue, Result
from pinlater.server.storage.interface import BatchQueue, BegunBatch

logger = logging.getLogger(__name__)


class WriterLane(LaneQueue[Item, Result]):
    """`join` makes the command of items that wait together. `shard`: executes it. For further options see `LaneQueue`."""

    def __init__(
        self,
        name: str,
        join: Callable[[list[Item]], JoinedItems[Result]],
        shard: BatchQueue,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self._join = join
        self._shard = shard
        self._queued = False  # the writer has this lane
        self._alone: deque[LaneEntry[Item, Result]] = deque()  # items of a call that failed because of a bug
        self._joined: JoinedItems[Result] | None = None
        self._idle: asyncio.Future[None] | None = None

    async def close(self) -> None:
        """Refuses new items and finishes the present ones."""
        self._closed = True
        while self._queued:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle])

    def _start(self) -> None:
        if not self._queued:
            self._queued = True
            try:
                self._shard.join(self)
            except PinLaterError as error:
                self.fail_waiting(error)
                self._goes_on()

    def _goes_on(self) -> bool:
        """Returns whether something waits. If not, the writer forgets this lane."""
        if self._waiting or self._alone:
            return True
        self._queued = False
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        return False

    # --- what the writer calls ----------------------------------------------------------------------------------------------
    def begin(self) -> BegunBatch | None:
        """Takes what waits. Returns None if there is nothing to do: then the writer forgets this lane."""
        while batch := [self._alone.popleft()] if self._alone else self._next_batch():
            try:
                joined = self._joined = self._join(self._begin(batch))
            except Exception as error:  # noqa: BLE001 a bug: it must reach its own caller and no other
                self._ended(batch, None)
                self._try_alone(batch, error)
                continue
            if joined.command is not None:
                return cast("BegunBatch", joined)
            self._ended(batch, None)
            self._answer(batch, joined.results(()))
        self._goes_on()
        return None

    def done(self, answer: Any) -> bool:
        """Distributes the answer of the command. Returns whether other items wait."""
        batch, joined = self._under_way or [], self._joined
        self._ended(batch, None)
        self.outcome_unknown = False
        try:
            results = () if joined is None else joined.results(answer)
            if len(results) != len(batch):
                raise ValueError(f"{len(results)} results of {len(batch)} items")
        except Exception as error:
            logger.exception("lane %s: an answer can't be given out", self.name)
            self._fail(batch, RuntimeError(f"an answer of the {self.name} lane can't be given out: {error!r}"))
        else:
            self._answer(batch, results)
        return self._goes_on()

    def failed(self, error: BaseException) -> bool:
        """Handles a command that was not executed, or whose outcome is unknown. Returns whether other items wait."""
        batch, joined = self._under_way or [], self._joined
        self._ended(batch, None)
        if not isinstance(error, PinLaterError):
            self._try_alone(batch, error)
        else:
            self.outcome_unknown |= isinstance(error, OutcomeUnknown)
            if joined is not None and joined.failed is not None:
                joined.failed(error)
            self._fail(batch, error)
        return self._goes_on()

    def _try_alone(self, batch: list[LaneEntry[Item, Result]], error: BaseException) -> None:
        """Repeats a call that failed because of a bug item by item, so that a bad item harms only itself."""
        logger.error("lane %s: a call failed unexpectedly", self.name, exc_info=error)
        if len(batch) == 1:
            self._fail(batch, error)
        else:
            self._alone.extend(batch)
