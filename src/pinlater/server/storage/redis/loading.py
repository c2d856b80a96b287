"""Loads jobs as they are stored. A job whose claim or index entry is lost is repaired first, so that no call decides on half a job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.readers import Readers

logger = logging.getLogger(__name__)

# The claim that `load_jobs.lua` gives to a job which has none and doesn't wait.
_ODD = b"\0"


async def load_jobs(
    readers: Readers,
    refs: Sequence[bytes],
    *,
    bodies: bool = False,
    keys: Sequence[tuple[bytes, str]] = (),
    queues: Sequence[tuple[str, bytes]] = (),
) -> tuple[list[Any], list[bytes]]:
    """For each job record (without its body, unless `bodies`), size, claim and past, one after the other; and what is stored under
    the unique keys (queue, key). Raises `StaleQueues` if one of the `queues` has another id now."""
    request = encode((refs, int(bodies), keys, [name for name, _ in queues], [queue for _, queue in queues]))
    found, held = await readers.run("load_jobs", request)
    if _ODD in found[2::4]:
        odd = [ref for ref, claim in zip(refs, found[2::4], strict=True) if claim == _ODD]
        _, repaired, *_ = await readers.run("repair_jobs", encode(odd), "0", 0)
        readers.stats.jobs_repaired += repaired
        logger.error("claims or indexes of jobs are gone from Redis: %d jobs put right", repaired)
        found, held = await readers.run("load_jobs", request)
    return found, held
