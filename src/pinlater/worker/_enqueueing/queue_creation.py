"""Creates the queue of an enqueue, once a server has answered that there is none. So enqueues to queues that exist cost no further call.

The server decides: its setting may forbid it, and it refuses queues that were deleted within the last day. After a refusal, an enqueuer
does not ask again for a minute. A queue that an enqueue and a claim of one worker create at the same time is logged twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pinlater.client import _service_calls
from pinlater.client._client_call import ClientCall
from pinlater.client.errors import CallerError, PinLaterError, QueueNotFound, UnknownMethod
from pinlater.domain.errors import adding

_log = logging.getLogger("pinlater.worker")
_NOT_AGAIN_S = 60.0


class QueueCreation:
    """Belongs to one enqueuer and its servers. From any thread."""

    def __init__(self) -> None:
        self._refusals: dict[str, tuple[float, CallerError]] = {}

    @contextmanager
    def call(self, queue: str, missing: QueueNotFound, monotonic: Callable[[], float]) -> Iterator[ClientCall[None]]:
        """The call that creates the queue, to be carried out within the block. Raises `missing` with the reason if it is refused."""
        refused_s, refusal = self._refusals.get(queue, (0.0, None))
        if refusal is not None and monotonic() - refused_s < _NOT_AGAIN_S:
            raise not_created(missing, refusal)
        try:
            yield _service_calls.ensure_queue(queue)
        except CallerError as error:
            self._refusals[queue] = monotonic(), adding(error, "")  # without its traceback, whose frames hold jobs
            raise not_created(missing, error) from None
        _log.info("queue %s: created, since it did not exist", queue)


def not_created(missing: PinLaterError, refusal: CallerError) -> PinLaterError:
    """The error of a call whose queue is missing, with the reason why it was not created. An original server gives none."""
    if isinstance(refusal, UnknownMethod):
        return missing
    if isinstance(refusal, QueueNotFound):
        return adding(refusal, "")  # each caller is told its own rest of the jobs
    return adding(missing, f"; it can't be created: {refusal.message}")
