"""Bulk runs as shards keep them: up to three rows of one shard's history, under one time, queue and id.

The rows are the order of the run, its progress, and the request to stop it. So no server overwrites what another one says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from pinlater.domain.bulk_runs import BULK_KEPT_MS, UNDO_MS, BulkOrder, BulkRun, BulkState
from pinlater.domain.clock import Clock
from pinlater.domain.errors import InvalidArgument, NoHealthyShards, ShardConnectionFailed
from pinlater.domain.history import HOUR_MS
from pinlater.server.history.rollup import BULK_STEP_S
from pinlater.server.operations.addressing import on_reachable
from pinlater.server.operations.long_lists import in_turns
from pinlater.server.operations.merged_rows import START
from pinlater.server.sharding.shards import ShardLanes, Shards
from pinlater.server.storage.values import CopiesOf, SampleRange, StoredSample
from pinlater.server.telemetry.metrics import Metrics

WHO_CHARS_MAX = 300
_ORDER_BYTES_MAX = 8_000
_RUNS_A_TURN = 250
_PROGRESS, _STOP = ".progress", ".stop"


class RunRequest(NamedTuple):
    """The first row of a run. `undone_ms`: the start of the run that it undoes."""

    order: BulkOrder
    who: str
    undone_ms: int = 0


class RunProgress(NamedTuple):
    """The second row. `due`: of waiting jobs, it looks at those that are due, which come last: the others become due meanwhile. `after`:
    where its scan continues. `unseen`: it could not look at some shard. `server`: which carries it out. `key_taken`, `queue_gone`: jobs
    that it could not restore (`storage.values.Restored`). `copy_bytes`: what its copies take, by shard; less than 0 if it restores."""

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
    key_taken: int = 0
    queue_gone: int = 0
    copy_bytes: Mapping[str, int] = {}


class KeptRun(NamedTuple):
    """A run as it is kept, on that shard."""

    shard: str
    id: str
    started_ms: int
    order: BulkOrder
    who: str
    progress: RunProgress
    stop: bool = False
    undone_ms: int = 0

    @property
    def copies(self) -> CopiesOf:
        """Those that it makes, or restores."""
        undoes = self.order.undoes
        return CopiesOf(self.id, self.started_ms) if undoes is None else CopiesOf(undoes, self.undone_ms)

    def shown(self) -> BulkRun:
        now = self.progress
        state = now.state
        if self.stop and state is BulkState.RUNNING:
            state = BulkState.STOPPED
        return BulkRun(
            self.id,
            self.order,
            self.who,
            self.started_ms,
            state,
            now.looked,
            now.changed,
            now.news_ms,
            now.ended_ms,
            now.detail,
            self.started_ms + UNDO_MS if any(size > 0 for size in now.copy_bytes.values()) else None,
        )


_pack = msgspec.msgpack.Encoder().encode
_unpack_request = msgspec.msgpack.Decoder(RunRequest).decode
_unpack_progress = msgspec.msgpack.Decoder(RunProgress).decode


class BulkRecords:
    """The runs that the shards keep."""

    def __init__(self, shards: Shards, metrics: Metrics, clock: Clock) -> None:
        self._shards = shards
        self._metrics = metrics
        self._clock = clock

    async def all(self, queues: Sequence[str] | None = None) -> tuple[list[KeptRun], bool]:
        """The runs, the newest first, and whether a shard is missing. Leaves out what a newer server keeps in another form."""
        now_ms = self._clock.now_ms()
        wanted = SampleRange(BULK_STEP_S, now_ms - BULK_KEPT_MS, now_ms + HOUR_MS, queues)

        async def read(shard: ShardLanes) -> list[KeptRun]:
            rows = {row.origin: row for row in await shard.store.list_samples(wanted)}
            orders = [row for row in rows.values() if "." not in row.origin]
            return await in_turns(orders, lambda some: _kept_of(shard.name, some, rows), _RUNS_A_TURN)

        answers = await on_reachable(self._shards, self._metrics, "getBulkRuns", read)
        found = sorted((run for answer in answers for run in answer), key=lambda run: (-run.started_ms, run.id))
        return found, len(answers) < len(self._shards)

    async def read_again(self, run: KeptRun) -> KeptRun | None:
        """The run as its shard has it now; None if it is gone. Raises `Unavailable`."""
        shard = self._shards.get(run.shard)
        if shard is None:
            return None
        wanted = SampleRange(BULK_STEP_S, run.started_ms, run.started_ms + 1, [run.order.queue])
        rows = {row.origin: row for row in await shard.store.list_samples(wanted)}
        return next(_kept_of(shard.name, [rows[run.id]], rows), None) if run.id in rows else None

    def check_size(self, order: BulkOrder, who: str) -> None:
        """Raises `InvalidArgument` if the order is too long to be kept."""
        size = len(_pack(RunRequest(order, who)))
        if size > _ORDER_BYTES_MAX:
            raise InvalidArgument(f"The filters take {size} bytes; at most {_ORDER_BYTES_MAX} are kept")

    async def add(self, run: KeptRun) -> None:
        """Keeps a new run. Raises `Unavailable`."""
        await self._save(
            run, {"": _pack(RunRequest(run.order, run.who, run.undone_ms)), _PROGRESS: _pack(run.progress)}
        )

    async def tell(self, run: KeptRun, progress: RunProgress) -> None:
        """Keeps how far it is. Raises `Unavailable`."""
        await self._save(run, {_PROGRESS: _pack(progress)})

    async def ask_to_stop(self, run: KeptRun) -> None:
        """Keeps the request to stop it. Raises `Unavailable`."""
        await self._save(run, {_STOP: b""})

    async def _save(self, run: KeptRun, rows: dict[str, bytes]) -> None:
        shard = self._shards.get(run.shard)
        if shard is None:
            raise ShardConnectionFailed(f"Shard {run.shard} is no longer in the map")
        samples = [
            StoredSample(BULK_STEP_S, run.started_ms, run.order.queue, run.id + kind, data)
            for kind, data in rows.items()
        ]
        await shard.store.save_samples(samples)

    def roomiest(self) -> str:
        """The name of a shard for a new run. Raises `NoHealthyShards`."""
        shards = self._shards.in_reach()
        if not shards:
            raise NoHealthyShards
        return min(shards, key=lambda shard: (not shard.takes_enqueues, shard.fullness.full, shard.name)).name


def _kept_of(shard: str, orders: Sequence[StoredSample], rows: Mapping[str, StoredSample]) -> Iterator[KeptRun]:
    """Yields the runs of these orders, without those that have a form that this server does not know."""
    for row in orders:
        progress = rows.get(row.origin + _PROGRESS)
        try:
            order = _unpack_request(row.data)
            now = RunProgress() if progress is None else _unpack_progress(progress.data)
        except msgspec.MsgspecError:
            continue
        yield KeptRun(
            shard, row.origin, row.at_ms, order.order, order.who, now, row.origin + _STOP in rows, order.undone_ms
        )
