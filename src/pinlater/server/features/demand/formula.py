"""How many job slots a queue can use now. Pure.

The claimed jobs do not show how many slots are in use: a worker prefetches short jobs, up to fifty for a slot. Each additional worker
prefetches as many, and would call for further workers. So a claimed job counts as a slot only if it has been claimed for longer than a
second, or if its run time is not known.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class QueueWork(NamedTuple):
    """The work of one queue.

    `in_hand`: jobs that workers have claimed.
    `runnable`: jobs that are due, and behind no other job of their ordering key.
    `claimed`, `enqueued`: jobs a second.
    `run_s`: the mean run time of a job, or None if it is not known.
    `limit`: jobs that may be handed out a second; None for no limit.
    """

    in_hand: int
    runnable: int
    claimed: float = 0.0
    enqueued: float = 0.0
    run_s: float | None = None
    limit: float | None = None
    paused: bool = False


def slots_wanted(load: QueueWork, drain_target_s: float) -> int:
    """Returns the slots that keep up with the incoming jobs, and work off the waiting ones within `drain_target_s`.

    At most as many as claimed and runnable jobs. At least as many as jobs that have been claimed for longer than a second, and one
    more while a job is runnable, so that it gets a slot even if much longer jobs hold all others. A rate limit bounds the slots by the
    jobs that it lets run at the same time, and a pause by the claimed ones. If the run time is not known, it is estimated from the
    claimed jobs if all of them are replaced within a second; otherwise each job gets a slot, or with a limit, each that may start within
    `drain_target_s`.
    """
    in_hand, runnable, claimed, enqueued, run_s, limit, paused = load
    if paused or limit == 0:
        runnable = 0
    most = in_hand + runnable
    if run_s is None and claimed >= max(in_hand, 1):
        run_s = in_hand / claimed
    if run_s is None:
        held, wanted, turn_s = float(in_hand), float(most), drain_target_s
    else:
        held, turn_s = max(0.0, in_hand - claimed), run_s
        wanted = max(held + min(runnable, 1), (enqueued + runnable / drain_target_s) * run_s, 1)
    if limit:
        wanted = min(wanted, max(held, limit * turn_s, 1))
    return min(most, math.ceil(wanted))
