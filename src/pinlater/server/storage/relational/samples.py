"""The history of queues. MySQL saves and deletes samples in its own way, since none counts as a change for other servers."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage.relational.dialect import Dialect
from pinlater.server.storage.relational.reading import BoundStatement, Reader
from pinlater.server.storage.relational.rows import text_of
from pinlater.server.storage.values import SampleRange, StoredSample

_BEGIN = (-(2**63), "", "")


async def find(reader: Reader, ranges: Sequence[SampleRange]) -> list[StoredSample]:
    """Finds the samples of one range after the other, each with a step of its own, in the order of time, queue and origin."""
    looks = [_look(wanted) for wanted in ranges if wanted.queues is None or wanted.queues]
    by_step: dict[int, list[StoredSample]] = {wanted.step_s: [] for wanted in ranges}
    for step_s, at_ms, queue, origin, data in await reader.select_union(looks) if looks else ():
        by_step[step_s].append(StoredSample(step_s, at_ms, text_of(queue), text_of(origin), data))
    return [sample for samples in by_step.values() for sample in sorted(samples)]


async def save(dialect: Dialect, samples: Sequence[StoredSample]) -> None:
    """Saves samples, each replacing the one with the same key."""
    dialect.insert("save_samples", samples)


async def trim(dialect: Dialect, step_s: int, before_ms: int, limit: int) -> int:
    """Deletes the oldest. Returns how many."""
    return await dialect.change_now("delete_samples", step_s=step_s, before_ms=before_ms, limit=limit)


def _look(wanted: SampleRange) -> BoundStatement:
    after_ms, after_queue, after_origin = wanted.after or _BEGIN
    values: dict[str, object] = {
        "step_s": wanted.step_s,
        "from_ms": wanted.from_ms,
        "until_ms": wanted.until_ms,
        "after_ms": after_ms,
        "after_queue": after_queue,
        "after_origin": after_origin,
        "limit": wanted.limit,
    }
    if wanted.queues is None:
        return BoundStatement("list_samples", values)
    return BoundStatement("list_samples_of", {**values, "queues": list(wanted.queues)})
