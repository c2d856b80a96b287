"""Gives up a job that has killed too many processes, whatever attempts it has left."""

from __future__ import annotations

import logging

from pinlater.client.async_client import AsyncClient
from pinlater.client.errors import PinLaterError
from pinlater.client.values import ClaimedJob
from pinlater.worker._attempts.endings import Ending, Kind, type_name
from pinlater.worker.errors import ProcessDied

_log = logging.getLogger("pinlater.worker")
_CRASHES_MAX = 3
_PROCESS_DIED = type_name(ProcessDied)


async def blamed(client: AsyncClient, job: ClaimedJob, ending: Ending) -> Ending:
    """How an attempt ended whose process has died, by the attempts in the job's history."""
    crashes = await _crashes_of(client, job) + 1
    if crashes < _CRASHES_MAX:
        return ending
    text = f"{ending.error_text}; given up: the job ended {crashes} processes"
    return ending._replace(kind=Kind.GIVEN_UP, error_text=text, status=f"{ending.status}; given up")


async def _crashes_of(client: AsyncClient, job: ClaimedJob) -> int:
    """How many processes died while they ran this job, by its history; 0 if the server doesn't answer."""
    try:
        info = (await client.lookup([job.descriptor])).get(job.descriptor)
    except PinLaterError as error:
        _log.warning("queue %s: can't read the history of job %s: %s", job.queue, job.descriptor, error)
        return 0
    if info is None:
        return 0
    in_history = sum(attempt.error_type == _PROCESS_DIED for attempt in info.attempts)
    return in_history or info.custom_status.count(f"{_PROCESS_DIED}:")
