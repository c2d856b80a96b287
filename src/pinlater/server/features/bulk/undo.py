"""The undo of bulk deletes: how much space the copies of deleted jobs may take, and a run that restores jobs.

A run counts the bytes of its copies with its progress, by shard, and an undo counts those that it frees. So no store has to add them up.
Weakness: the bytes that a server adds in its last second before it is killed, or on a shard whose answer is lost, are not counted, and
those that other servers add are known only some seconds later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pinlater.domain.bulk import RESTORABLE_MS, BulkAction, BulkOrder, BulkState
from pinlater.domain.clock import Clock
from pinlater.domain.errors import InvalidArgument
from pinlater.domain.wording import counted, size
from pinlater.server.features.bulk.records import BulkRecords, KeptRun
from pinlater.server.features.bulk.steps import BulkSteps
from pinlater.server.operations.bulk import Bulk
from pinlater.server.operations.merged_rows import END, START
from pinlater.server.sharding.shards import Shards
from pinlater.server.storage.values import COPIES_KEPT_MS, CopiesOf, DeletedWithCopies, RestoreOrder

_READ_MS = 10_000
_PASSED = "\0"  # a name followed by it sorts directly behind that name


class CopySpace:
    """The space that the copies of all runs take, as of some seconds ago."""

    def __init__(self, records: BulkRecords, clock: Clock, bytes_max: int) -> None:
        self._records = records
        self._clock = clock
        self.bytes_max = bytes_max
        self._read_ms = -_READ_MS
        self._by_run: Mapping[str, Mapping[str, int]] = {}

    async def refresh(self) -> None:
        """Refreshes figures that are ten seconds old. Runs on an unreachable shard count as they were last seen. Raises `Unavailable`."""
        now_ms = self._clock.now_ms()
        if now_ms - self._read_ms >= _READ_MS:
            self._by_run = bytes_by_run((await self._records.shown())[0], now_ms)
            self._read_ms = now_ms

    def of_others(self, run: str, shard: str) -> int:
        """The bytes on a shard of all runs but one."""
        return sum(max(0, sizes.get(shard, 0)) for other, sizes in self._by_run.items() if other != run)


def bytes_by_run(runs: Iterable[KeptRun], now_ms: int) -> dict[str, dict[str, int]]:
    """Returns the bytes of the present copies, by the run that made them and by shard. Copies that are too old count as gone."""
    ended = {run.id: run.progress.ended_ms for run in runs}
    found: dict[str, dict[str, int]] = {}
    for run in runs:
        maker = run.order.undoes or run.id
        ended_ms = ended.get(maker)
        if maker not in ended or (ended_ms is not None and ended_ms + COPIES_KEPT_MS < now_ms):
            continue
        sizes = found.setdefault(maker, {})
        for shard, copy_bytes in run.progress.copy_bytes.items():
            sizes[shard] = sizes.get(shard, 0) + copy_bytes
    return found


class RunCopies:
    """Counts the copies of one run that deletes, and checks their bound."""

    def __init__(self, space: CopySpace, steps: BulkSteps) -> None:
        self._space = space
        self._steps = steps

    def check(self, shard: str) -> None:
        """Raises `InvalidArgument` if the copies on that shard take too much."""
        taken = self._space.of_others(self._steps.run.id, shard) + self._steps.progress.copy_bytes.get(shard, 0)
        if taken >= self._space.bytes_max:
            raise InvalidArgument(
                f"The copies of deleted jobs take {size(taken)} on shard {shard}, of {size(self._space.bytes_max)} (jobs.max_undo_bytes): "
                "no further job was deleted. Delete for good to keep no copies"
            )

    def note(self, shard: str, done: DeletedWithCopies) -> None:
        self._steps.note(changed=done.deleted)
        self._steps.note_copies(shard, done.copy_bytes)


def order_to_undo(runs: Sequence[KeptRun], undone: KeptRun, order: BulkOrder, now_ms: int) -> BulkOrder:
    """The order that undoes a run, with the filter of that run. `runs`: the runs of its queue. Raises `InvalidArgument`."""
    if undone.order.action is not BulkAction.DELETE:
        raise InvalidArgument(
            f"Run {undone.id} has deleted no jobs: it is a {undone.order.action.value}", detail="NO_DELETE"
        )
    if undone.order.for_good:
        raise InvalidArgument(f"Run {undone.id} has deleted for good: no copies were kept", detail="NO_COPIES")
    ended_ms = undone.progress.ended_ms
    if ended_ms is None:
        raise InvalidArgument(
            f"Run {undone.id} is under way; stop it, and undo it some seconds later", detail="UNDER_WAY"
        )
    if ended_ms + RESTORABLE_MS < now_ms:
        raise InvalidArgument(f"Run {undone.id} ended more than a day ago: its copies are gone", detail="NO_COPIES")
    for run in runs:
        if run.order.undoes == undone.id and run.is_running:
            raise InvalidArgument(f"Run {run.id} undoes it already", detail="UNDER_WAY")
        if run.order.undoes == undone.id and run.progress.state is BulkState.DONE and not run.progress.detail:
            raise InvalidArgument(
                f"Run {undone.id} is undone already: run {run.id} brought its jobs back", detail="ALREADY_UNDONE"
            )
    return undone.order._replace(
        action=BulkAction.RESTORE, jobs_per_second=order.jobs_per_second, undoes=undone.id, attempts=1, expected=None
    )


def jobs_to_restore(runs: Sequence[KeptRun], undone: KeptRun) -> int | None:
    """Returns how many jobs an undo of that run finds: those that it has deleted, without those that were restored before. None if that
    is not known.
    `runs`: the runs of its queue."""
    if undone.progress.uncounted:
        return None
    before = sum(run.progress.changed for run in runs if run.order.undoes == undone.id)
    return max(0, undone.progress.changed - before)


class BulkRestore:
    """Executes runs that restore jobs: shard by shard in the order of their names, and in each step the jobs that one call deleted."""

    def __init__(self, shards: Shards, bulk: Bulk) -> None:
        self._shards = shards
        self._bulk = bulk

    async def step(self, steps: BulkSteps) -> int:
        """Restores the jobs that the next call deleted. Returns how many jobs. Its end is the position `END`. Raises `Unavailable`."""
        place, after = _position(steps.progress.after)
        name = min((shard.name for shard in self._shards if shard.name >= after), default=None)
        shard = None if name is None else self._shards.get(name)
        if name is None or shard is None:
            steps.to_place(END)
            return 0
        if not shard.healthy:
            steps.to_place(f" {name}{_PASSED}", unseen=True)
            return 0
        run = steps.run
        copies = CopiesOf(run.order.undoes or "", run.copied_ms)
        order = RestoreOrder(run.order.queue, copies, place if name == after else "")
        answer = await self._bulk.restore(shard, order)
        if answer.after is None:
            steps.to_place(f" {name}{_PASSED}")
        else:
            steps.note_restored(name, answer)
            steps.to_place(f"{answer.after} {name}")
        return answer.restored


def _position(after: str) -> tuple[str, str]:
    """Parses the position of a run. Returns the name of its shard and the position there."""
    place, _, name = ("", "", "") if after == START else after.partition(" ")
    return place, name


def left_out(steps: BulkSteps, now_ms: int) -> str:
    """Returns the obstacle, as text; '' if there is none."""
    told, progress = list[str](), steps.progress
    if progress.key_taken:
        told.append(
            f"{counted(progress.key_taken, 'job')} stayed away: another job has the unique key. Undo again once it is free"
        )
    if progress.queue_gone:
        told.append(f"{counted(progress.queue_gone, 'job')} stayed away: the queue was deleted meanwhile")
    if steps.run.copied_ms + COPIES_KEPT_MS < now_ms:
        told.append("some jobs may be missing: copies are kept for a day, and it is longer since the run began")
    return "; ".join(told)
