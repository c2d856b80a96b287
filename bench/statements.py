"""The row about statements: how many the database is sent for a job, at one caller and at many.

By the database's own count, which has each of a packet's statements, BEGIN and COMMIT too. A call rides with others that come
meanwhile, so the more callers there are the fewer statements each job takes.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from bench.benchmark_run import BODY, QUEUE, BenchmarkRun, MeasuredRun
from bench.raw_client import RawClient
from bench.results import RowResult, median_of
from bench.servers import PinLaterServer


def statements(place: BenchmarkRun) -> RowResult:
    """One job a request; enqueues, then claims with their acks, at each number of callers."""
    callers = place.sizes.callers
    runs = []
    for _ in range(max(1, place.sizes.repeats - 2)):
        with place.pinlater() as server:
            enqueues = {f"enqueue_{many}": _a_job(place, server, "enqueue", many) for many in callers}
            with RawClient(server.port) as client:
                client.enqueue_many(QUEUE, BODY, place.sizes.claim_jobs_single)
            claims = {f"claim_{many}": _a_job(place, server, "claim", many) for many in callers}
        runs.append(enqueues | claims)
    figures = median_of(runs)
    steps = [
        figures[f"{work}_{more}"] / figures[f"{work}_{fewer}"]
        for work in ("enqueue", "claim")
        for fewer, more in pairwise(callers)
    ]
    figures["worst_step"] = max(steps)
    title = (
        f"statements a job, one a request, at {', '.join(map(str, callers))} callers: the worst step from fewer to more"
    )
    return RowResult("statements", title, place.goals("statements"), figures, runs=list(runs))


def _a_job(place: BenchmarkRun, server: PinLaterServer, kind: str, callers: int) -> float:
    """All of the load counts, its beginning too, or what the database counts would be another load's."""
    plan = replace(place.plan(server, kind, callers, 1), warmup_seconds=0.0)
    if kind == "claim":
        jobs_max = place.sizes.claim_jobs_single // len(place.sizes.callers)
        plan = replace(plan, jobs_max=jobs_max)

    def load() -> MeasuredRun:
        return place.load(server, plan, rested=True)

    place.stores.rest()  # asks the database, too, so not within
    run, sent = place.mysql.statements_during(load)
    return sent / run.report.jobs
