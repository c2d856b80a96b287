"""The rows of bulk runs: each has up to four rows in the history of one shard, with the same time, queue and id.

These are its order, its progress, the request to stop it, and its end. So no server overwrites the row of another one: late progress, from
a server that stood still, leaves the end as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pinlater.domain.bulk import BULK_KEPT_MS, RESTORABLE_MS, BulkAction, BulkOrder, BulkState
from pinlater.domain.caller_names import WITHOUT_TOKEN, NamedCaller
from pinlater.domain.clock import Clock
from pinlater.domain.errors import InvalidArgument, NoHealthyShards, ShardConnectionFailed
from pinlater.domain.history import HOUR_MS
from pinlater.domain.job import JobState
from pinlater.server.features.bulk.estimate import left_ms, percent_of
from pinlater.server.features.history.rollup import BULK_STEP_S
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.merged_rows import START
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.commands import ListSamples, SaveSamples
from pinlater.server.storage.values import SampleRange, StoredSample
from pinlater.server.telemetry.metrics import Metrics
from pinlater.wire.generated.structs import BulkRun
from pinlater.wire.job_filters import wire_order

WHO_CHARS_MAX = 300
_ORDER_BYTES_MAX = 8_000
_STATE_NUMBERS = {state: number for number, state in enumerate(BulkState)}
_RUNS_A_TURN = 250
_PROGRESS, _STOP, _END = ".progress", ".stop", ".end"


class _Order(NamedTuple):
    """The first row of a run. `who`: who started it, as displayed; `source`, `caller`: the same for listeners to its end.
    `copied_ms`: the start of the run whose jobs it restores. `order`: in the form that `_stored` returns."""

    order: Sequence[Any]
    who: str
    copied_ms: int = 0
    source: str = ""
    caller: NamedCaller = WITHOUT_TOKEN


class RunProgress(NamedTuple):
    """The second row, and the last one. `due`: if its jobs wait, it now looks at those that are due; these come last, since others become
    due meanwhile. `due_first`: the same before it looks at the others, since it changes a limited number of jobs. `after`: where its scan
    continues. `unseen`: some shard was unreachable at some time since its scan began.

    `server`: the server that executes it, '' once that server has left it. `term`: incremented by each server that continues the run.
    `again`: the scan may meet jobs that the run has already changed. `uncounted`: the numbers may lack some changes.

    `key_taken`, `queue_gone`: jobs that it could not restore (`storage.values.Restored`) since its scan began. `copy_bytes`: the size of
    its copies, by shard; negative if it restores.

    `to_look_at`: how many jobs there were for its present look when that began; None if a shard could not be asked, or before they are
    counted. `passed`: how many jobs it has looked at, without the page that it is changing now, of which it has done `in_page`.
    `busy_ms`: for how long servers have executed this look. `expected`: how many jobs it will change in all, according to counters.
    """

    state: BulkState = BulkState.RUNNING
    looked: int = 0
    changed: int = 0
    news_ms: int = 0
    ended_ms: int | None = None
    detail: str = ""
    due: bool = False
    after: str = START
    unseen: bool = False
    server: str = ""
    term: int = 1
    again: bool = False
    uncounted: bool = False
    key_taken: int = 0
    queue_gone: int = 0
    copy_bytes: Mapping[str, int] = {}
    to_look_at: int | None = None
    passed: int = 0
    in_page: int = 0
    busy_ms: int = 0
    expected: int | None = None
    due_first: bool = False


class KeptRun(NamedTuple):
    """A run as its shard stores it. `who`, `source`, `caller`, `copied_ms`: as in `_Order`."""

    shard: str
    id: str
    started_ms: int
    order: BulkOrder
    who: str
    progress: RunProgress
    stop: bool = False
    copied_ms: int = 0
    source: str = ""
    caller: NamedCaller = WITHOUT_TOKEN

    @property
    def is_running(self) -> bool:
        """Whether it has not ended; it may be about to stop."""
        return self.progress.state is BulkState.RUNNING

    @property
    def takes_due_first(self) -> bool:
        """Whether it looks at due jobs first, as lists do: the jobs that it reaches before its limit are those that are listed first."""
        return self.order.max_jobs is not None and self.order.filter.state is JobState.PENDING

    @property
    def _may_have_copies(self) -> bool:
        """Whether the run has made copies, judged by its numbers."""
        order, now = self.order, self.progress
        if order.action is not BulkAction.DELETE or order.for_good:
            return False
        return now.uncounted or any(size > 0 for size in now.copy_bytes.values())

    def shown(self, now_ms: int) -> BulkRun:
        """Returns the run as callers see it."""
        now = self.progress
        state = BulkState.STOPPED if self.stop and self.is_running else now.state
        passed = now.passed + now.in_page
        expected = now.expected if self.order.expected is None else self.order.expected
        goes_on = state is BulkState.RUNNING and not now.detail
        return BulkRun(
            self.id,
            wire_order(self.order),
            self.who,
            self.started_ms,
            _STATE_NUMBERS[state],
            now.looked,
            now.changed,
            now.news_ms,
            now.ended_ms,
            now.detail or None,
            self.started_ms + RESTORABLE_MS if self._may_have_copies else None,
            now.to_look_at,
            None if expected is None else max(expected, now.changed),
            percent_of(state, passed, now.to_look_at),
            left_ms(passed, now.to_look_at, now.busy_ms, now_ms - now.news_ms) if goes_on else None,
        )


def _stored(order: BulkOrder) -> list[Any]:
    """Returns the stored form of an order. Its filter is stored in two pieces, and a number of jobs is left out if there is none, so that
    older servers can read orders that do not use them."""
    state, priority, regex, *compared = order.filter
    rest = list(order[3:] if order.max_jobs is not None else order[3:-1])
    return [order.queue, order.action, state, priority, regex, compared, *rest]


def _stored_progress(run: KeptRun, progress: RunProgress) -> Sequence[Any]:
    """Returns the stored form of progress, without the fields that only a limited run needs, so that servers from before such runs read
    the others."""
    return progress[:-1] if run.order.max_jobs is None else progress


def _order_of(stored: Sequence[Any]) -> BulkOrder:
    """Returns a stored order. Raises `ValueError` if it has a format that this server does not know."""
    queue, action, state, priority, regex, compared, *rest = stored
    return msgspec.convert([queue, action, [state, priority, regex, *compared], *rest], BulkOrder)


_pack = msgspec.msgpack.Encoder().encode
_unpack_order = msgspec.msgpack.Decoder(_Order).decode
_unpack_progress = msgspec.msgpack.Decoder(RunProgress).decode


class BulkRecords:
    """Reads and writes the rows of runs."""

    def __init__(self, shards: Shards, metrics: Metrics, clock: Clock) -> None:
        self._shards = shards
        self._metrics = metrics
        self._clock = clock
        self._seen: dict[str, dict[str, KeptRun]] = {}  # by shard and id, as last read: only for display

    async def all(self, queues: Sequence[str] | None = None) -> tuple[list[KeptRun], bool]:
        """The runs, the newest first, and whether a shard is missing. Leaves out runs that a newer server stores in another format."""
        answers = await self._read(queues)
        return _newest_first(run for runs in answers.values() for run in runs), len(answers) < len(self._shards)

    async def shown(self, queues: Sequence[str] | None = None) -> tuple[list[KeptRun], list[str]]:
        """The runs, the newest first, and the names of the shards that do not answer. The runs on these shards are as this server last
        saw them."""
        answers = await self._read(queues)
        missing = [name for name in self._seen if name not in answers]
        seen = [run for name in missing for run in self._seen[name].values() if _is_of(run, queues)]
        return _newest_first([*(run for runs in answers.values() for run in runs), *map(_last_seen, seen)]), missing

    async def _read(self, queues: Sequence[str] | None) -> dict[str, list[KeptRun]]:
        """The runs on each shard that answers."""
        now_ms = self._clock.now_ms()
        wanted = SampleRange(BULK_STEP_S, now_ms - BULK_KEPT_MS, now_ms + HOUR_MS, queues)

        async def read(shard: ShardLanes) -> tuple[str, list[KeptRun]]:
            rows = {row.origin: row for row in await shard.store.submit(ListSamples([wanted]))}
            orders = [row for row in rows.values() if "." not in row.origin]
            return shard.name, await in_turns(orders, lambda some: _kept_of(shard.name, some, rows), _RUNS_A_TURN)

        answers = dict(await on_reachable(self._shards, self._metrics, "getBulkRuns", read))
        self._seen = {shard.name: self._seen.get(shard.name, {}) for shard in self._shards}
        for name, runs in answers.items():
            others = [run for run in self._seen.get(name, {}).values() if not _is_of(run, queues)]
            self._seen[name] = {run.id: run for run in (*others, *runs)}
        return answers

    async def read_again(self, run: KeptRun) -> KeptRun | None:
        """The run as its shard stores it now, or None if it is gone. Raises `Unavailable`."""
        shard = self._shards.get(run.shard)
        if shard is None:
            return None
        wanted = SampleRange(BULK_STEP_S, run.started_ms, run.started_ms + 1, [run.order.queue])
        rows = {row.origin: row for row in await shard.store.submit(ListSamples([wanted]))}
        return next(_kept_of(shard.name, [rows[run.id]], rows), None) if run.id in rows else None

    def check_size(self, order: BulkOrder) -> None:
        """Raises `InvalidArgument` if the order is too long to be stored."""
        size = len(_pack(_stored(order)))
        if size > _ORDER_BYTES_MAX:
            raise InvalidArgument(f"The filters take {size} bytes; at most {_ORDER_BYTES_MAX} are kept")

    async def add(self, run: KeptRun) -> None:
        """Keeps a new run. Raises `Unavailable`."""
        order = _Order(_stored(run.order), run.who, run.copied_ms, run.source, run.caller)
        await self._save(run, {"": _pack(order), _PROGRESS: _pack(_stored_progress(run, run.progress))})
        self._seen.setdefault(run.shard, {})[run.id] = run

    async def save_progress(self, run: KeptRun, progress: RunProgress) -> None:
        """Saves the progress, or the end, which is final. Raises `Unavailable`."""
        kind = _PROGRESS if progress.state is BulkState.RUNNING else _END
        await self._save(run, {kind: _pack(_stored_progress(run, progress))})

    async def save_stop(self, run: KeptRun) -> None:
        """Stores the request to stop it. Raises `Unavailable`."""
        await self._save(run, {_STOP: b""})

    def has_shard(self, run: KeptRun) -> bool:
        """Returns whether the shard of the run is still in the map."""
        return self._shards.get(run.shard) is not None

    def roomiest(self) -> str:
        """The name of a shard for a new run. Raises `NoHealthyShards`."""
        shards = self._shards.in_reach()
        if not shards:
            raise NoHealthyShards
        return min(shards, key=lambda shard: (not shard.takes_enqueues, shard.fullness.full, shard.name)).name

    async def _save(self, run: KeptRun, rows: Mapping[str, bytes]) -> None:
        shard = self._shards.get(run.shard)
        if shard is None:
            raise ShardConnectionFailed(f"Shard {run.shard} is no longer in the map")
        await shard.store.submit(
            SaveSamples(
                [
                    StoredSample(BULK_STEP_S, run.started_ms, run.order.queue, run.id + kind, data)
                    for kind, data in rows.items()
                ]
            )
        )


def _newest_first(runs: Iterable[KeptRun]) -> list[KeptRun]:
    return sorted(runs, key=lambda run: (-run.started_ms, run.id))


def _is_of(run: KeptRun, queues: Sequence[str] | None) -> bool:
    return queues is None or run.order.queue in queues


def _last_seen(run: KeptRun) -> KeptRun:
    """Returns the run as displayed while its shard does not answer."""
    if not run.is_running:
        return run
    detail = f"shard {run.shard}, which keeps it, is unreachable: it was last seen like this"
    return run._replace(progress=run.progress._replace(detail=detail))


def _kept_of(shard: str, orders: Sequence[StoredSample], rows: Mapping[str, StoredSample]) -> Iterator[KeptRun]:
    """Yields the runs of these orders, without those in a format that this server does not know."""
    for row in orders:
        progress = rows.get(row.origin + _END, rows.get(row.origin + _PROGRESS))
        try:
            stored, who, copied_ms, source, caller = _unpack_order(row.data)
            order = _order_of(stored)
            now = RunProgress() if progress is None else _unpack_progress(progress.data)
        except ValueError:
            continue
        stop = row.origin + _STOP in rows
        yield KeptRun(shard, row.origin, row.at_ms, order, who, now, stop, copied_ms, source, caller)
