"""Ordering keys: the first jobs of a key are ordinary ones, the others wait behind them.

Each job with an ordering key that has not ended has a row in `ordered`, with a number for its place among those of its key. The
first one is stored like a job without a key. A job behind it is in `ready`, too, but with a run-after that never comes (`BEHIND_MS` plus
its number). So it is PENDING for all code, no claim reads it, and the counters count it as not yet due. The transaction in which a job
ends deletes its row of `ordered`, and gives the next one of the key its own run-after.

Several jobs of a key may be ready or claimed at a time: then the first ones of the key are stored like jobs without a key. Each of them is
marked as let go in its row (`LET_GO_MS`) before another job waits behind them, so that code that makes the next one ready need not lock
the rows of those in progress. A job that failed finally may stop its key: its row stays, marked so, and no job behind it becomes ready.

The transaction reads the rows of the queues in the store, after it has locked the keys. So servers need not agree about their settings and
homes. A transaction in which jobs take places keeps the row from changing until it ends (`MoveHome`). While jobs on a former home have to
run first, none becomes ready, whatever ends.

Two transactions that change which job of a key is first wait for each other (`Dialect.lock_keys`): they lock keys in order, after the
rows of the jobs of their call, and before the rows of jobs behind. A transaction that ends only jobs behind others needs no key.

Weakness: a transaction that ends a first job, and jobs behind others of other keys, may form a deadlock with two others. Then the database
aborts one of them, and the server executes it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from pinlater.domain.queue import IN_HAND_PER_KEY_MAX, STOP, TO_BACK, Queue
from pinlater.domain.transitions import FAILED
from pinlater.server.storage.changes import Changes
from pinlater.server.storage.options import BEHIND_MS, LET_GO_MS, STOPPED_MS, is_behind, options_of
from pinlater.server.storage.record import JobRecord
from pinlater.server.storage.relational.dialect import Dialect, OrderedRow, OrderingKey
from pinlater.server.storage.relational.loading import load
from pinlater.server.storage.relational.rows import StateRow, text_of


class EnteringJob(NamedTuple):
    """A job that takes the last place of its key. `due_ms`: when it is due once it is first."""

    id: int
    key: OrderingKey
    due_ms: int


class EndedJob(NamedTuple):
    """A job of a key that has ended. `behind`: it is known to have waited behind others."""

    id: int
    key: OrderingKey
    behind: bool


class _OrderedRow(NamedTuple):
    """A row of `ordered`. `marks`: its queue marks the jobs that do not wait behind others."""

    id: int
    due_ms: int
    marks: bool


class LastPlaces:
    """The last places of keys that the transaction has locked: as the store has them, and then as the added jobs change them."""

    __slots__ = ("_free", "_last", "_most", "away")

    def __init__(
        self,
        last: dict[OrderingKey, int],
        most: Mapping[OrderingKey, int],
        free: dict[OrderingKey, int],
        away: Collection[int],
    ) -> None:
        self.away = away
        """The queues whose jobs with ordering keys this shard does not accept, by their ids."""
        self._last = last  # the highest number of each key that has jobs
        self._most = most  # how many jobs of a key may be in progress at a time
        self._free = free  # how many more jobs of a key may become ready at once

    def enter(self, jobs: Sequence[EnteringJob]) -> tuple[list[OrderedRow], dict[int, int]]:
        """Gives jobs their numbers, in this order. Returns their rows of `ordered`, which the caller stores, and the run-afters of those
        that wait behind others, by id."""
        last, most, free = self._last, self._most, self._free
        rows: list[OrderedRow] = []
        run_after_ms: dict[int, int] = {}
        for job_id, key, due_ms in jobs:
            number = last[key] = last.get(key, 0) + 1
            free[key] -= 1
            if free[key] < 0:
                run_after_ms[job_id] = BEHIND_MS + number
            rows.append((job_id, *key, number, LET_GO_MS if free[key] >= 0 and most[key] > 1 else due_ms))
        return rows, run_after_ms

    def idle(self) -> list[OrderingKey]:
        """Returns the keys without jobs, in order."""
        return sorted(self._most.keys() - self._last.keys())


async def last_places(dialect: Dialect, keys: Collection[OrderingKey]) -> LastPlaces:
    """Locks keys and reads their last places."""
    dialect.lock_keys(keys)
    last, queues = await dialect.last_numbers(keys)
    most = _most_in_hand(keys, queues, dialect.shard)
    away = [queue_id for queue_id, queue in queues.items() if not queue.home.is_at(dialect.shard)]
    return LastPlaces(last, most, await _free_places(dialect, most, {*last}), away)


async def away(dialect: Dialect, jobs: Iterable[JobRecord]) -> set[int]:
    """Returns the ids of those of these jobs that can't take a place again: another shard takes the jobs with ordering keys of their queue
    now. A job that has stopped its key still has its place."""
    keyed = [job for job in jobs if job.options.ordering_key is not None]
    if not keyed:
        return set()
    queues = await dialect.held_queues({job.queue_id for job in keyed})
    found = {job.id for job in keyed if not queues[job.queue_id].home.is_at(dialect.shard)}
    return found - await _stopped(dialect, found)


async def enter(dialect: Dialect, jobs: Sequence[EnteringJob]) -> dict[int, int]:
    """Gives jobs their numbers, in this order. Returns the run-afters of those that wait behind others, by id."""
    places = await last_places(dialect, {job.key for job in jobs})
    rows, run_after_ms = places.enter(jobs)
    dialect.insert_ordered(rows)
    return run_after_ms


def _most_in_hand(keys: Iterable[OrderingKey], queues: Mapping[int, Queue], shard: str) -> dict[OrderingKey, int]:
    """Returns how many jobs of each key may be in progress at a time: none while those on the former home have to run first."""
    most = {
        queue_id: 0 if queue.home.waits and queue.home.is_at(shard) else queue.config.max_in_hand_per_key or 1
        for queue_id, queue in queues.items()
    }
    return {(queue_id, key): most[queue_id] for queue_id, key in keys}


async def _free_places(
    dialect: Dialect, most: Mapping[OrderingKey, int], last: Collection[OrderingKey]
) -> dict[OrderingKey, int]:
    """Returns how many more jobs of each key may become ready at once. `last`: the keys that have jobs.

    None while a job waits, since a later one must not overtake it. The first job of a key does not wait, but may have stopped the key.
    """
    places = await dialect.first_places([(key, number) for key, number in most.items() if number > 1 and key in last])
    free = {key: 0 if key in last and number <= 1 else number for key, number in most.items()}
    seen: set[OrderingKey] = set()
    for queue_id, text, _, due_ms in places:
        key = (queue_id, text_of(text))
        waits = due_ms != LET_GO_MS if key in seen else due_ms == STOPPED_MS
        free[key] = 0 if waits else free[key] - 1
        seen.add(key)
    return free


async def arrange(dialect: Dialect, changes: Changes) -> None:
    """Applies the changes of a call to the keys of its jobs: those that wait again after their end take the last places, and the next
    ones become ready in the place of those that have ended. Call it before the rows of the jobs are written."""
    moves = [(before, after) for before, after in changes.decided() if after.options.ordering_key is not None]
    stopping, back = await _failed(dialect, changes, [after for _, after in moves])
    revived = [after for before, after in moves if before.finished and not after.finished]
    if revived or back:  # a key that was unblocked meanwhile is not stopped
        dialect.lock_keys([_key_of(job) for _, job in moves])
    stopped = await _stopped(dialect, {job.id for job in revived})
    held = [job for job in revived if job.id in stopped]
    marks = {job.id: STOPPED_MS for job in stopping} | {job.id: LET_GO_MS for job in held}
    ended = [(before, after) for before, after in moves if after.finished > before.finished and after.id not in marks]
    entering = [*[job for job in revived if job.id not in marks], *back]
    dialect.for_each("mark_places", list(marks.items()))
    dialect.delete_ordered(sorted([job.id for job in back]))
    for job in await placed(dialect, entering, changes.now_ms):
        changes.place(job)
    if ended:
        due_ms = await own_due_ms(dialect, [before for before, _ in ended])
        for _, job in ended:
            if job.id in due_ms:  # the time that callers see from now on
                changes.place(replace(job, run_after_ms=due_ms[job.id], changed=True))
    await leave(dialect, changes, [_ended(before) for before, _ in ended], [_key_of(job) for job in [*back, *held]])


async def _failed(
    dialect: Dialect, changes: Changes, jobs: Sequence[JobRecord]
) -> tuple[list[JobRecord], list[JobRecord]]:
    """Returns the jobs that stop their keys, and the jobs that go to the end of their keys because their attempts have failed."""
    finally_failed = [job for job in jobs if changes.finally_failed(job)]
    retried = [job for job in jobs if changes.will_retry(job)]
    if not finally_failed and not retried:
        return [], []
    queues = await dialect.stored_queues({job.queue_id for job in [*finally_failed, *retried]})
    stopping = [job for job in finally_failed if queues[job.queue_id].config.after_failure == STOP]
    return stopping, [job for job in retried if queues[job.queue_id].config.retry_place == TO_BACK]


async def _stopped(dialect: Dialect, ids: Collection[int]) -> set[int]:
    """Returns those of these jobs that have stopped their keys: they keep their places although they have failed."""
    rows = await dialect.select_of("load_ordered", sorted(ids))
    return {job_id for job_id, _, _, due_ms in rows if due_ms == STOPPED_MS}


def _key_of(job: JobRecord) -> OrderingKey:
    return job.queue_id, job.options.ordering_key or ""


def _ended(job: JobRecord) -> EndedJob:
    return EndedJob(job.id, _key_of(job), is_behind(job.options, job.run_after_ms))


async def placed(dialect: Dialect, jobs: Sequence[JobRecord], now_ms: int) -> list[JobRecord]:
    """The jobs, which wait again, in the last places of their keys."""
    entering = [
        EnteringJob(job.id, (job.queue_id, key), job.run_after_ms) for job in jobs if (key := job.options.ordering_key)
    ]
    behind = await enter(dialect, entering) if entering else {}
    return [job.due_at(behind[job.id], now_ms) if job.id in behind else job for job in jobs]


async def leave(
    dialect: Dialect, changes: Changes, ended: Sequence[EndedJob], keys: Sequence[OrderingKey] = ()
) -> None:
    """Adds to the changes that the next jobs of the keys of these jobs become ready. `keys`: further keys whose jobs may become ready."""
    dialect.delete_ordered(sorted([job.id for job in ended]))
    await let_go(dialect, changes, {*keys, *(job.key for job in ended if not job.behind)})


async def let_go(dialect: Dialect, changes: Changes, of_keys: Collection[OrderingKey]) -> None:
    """Adds to the changes that the first jobs of these keys become ready, as many as the settings of their queues allow."""
    keys = sorted(of_keys)
    if not keys:
        return
    dialect.lock_keys(keys)
    while keys:
        first = await _first(dialect, keys)
        dialect.forget_keys([key for key in keys if not first.get(key)])
        gone = await _let_go(dialect, changes, first.values())
        dialect.delete_ordered(sorted(gone - await _stopped(dialect, gone)))
        keys = sorted([key for key, places in first.items() if any(place.id in gone for place in places)])


async def unblock(dialect: Dialect, changes: Changes, key: OrderingKey) -> int:
    """Adds to the changes that the next jobs of a key become ready, which no job stops any longer. Returns how many jobs stopped it."""
    dialect.lock_keys([key])
    rows = await dialect.first_places([(key, IN_HAND_PER_KEY_MAX)])
    stopped = sorted([job_id for _, _, job_id, due_ms in rows if due_ms == STOPPED_MS])
    if stopped:  # otherwise the first job may be in progress: who ends it locks its row before the key
        dialect.delete_ordered(stopped)
        await let_go(dialect, changes, [key])
    return len(stopped)


async def _first(dialect: Dialect, keys: Sequence[OrderingKey]) -> dict[OrderingKey, list[_OrderedRow]]:
    """The jobs of each key that may be in progress at a time."""
    found, queues = await dialect.select_keys("first_of_keys", keys)
    first: dict[OrderingKey, list[_OrderedRow]] = {(queue_id, text_of(key)): [] for queue_id, key, _, _ in found}
    most = _most_in_hand(first, queues, dialect.shard)
    for queue_id, text, job_id, due_ms in found:
        key = (queue_id, text_of(text))
        if job_id is not None and most[key] <= 1:
            first[key].append(_OrderedRow(job_id, due_ms if most[key] else STOPPED_MS, marks=False))
    several = [(key, number) for key, number in most.items() if number > 1]
    for queue_id, text, job_id, due_ms in await dialect.first_places(several):
        first[queue_id, text_of(text)].append(_OrderedRow(job_id, due_ms, marks=True))
    return first


async def _let_go(dialect: Dialect, changes: Changes, first: Collection[Sequence[_OrderedRow]]) -> set[int]:
    """Makes those of these jobs ready that wait behind others, unless one before them stops their key. Returns the ids of those that have
    ended meanwhile, by another transaction, or whose own rows are gone. No job of their keys becomes ready: they may have stopped it."""
    going = [_going(places) for places in first]
    await load(dialect, changes, sorted([place.id for places in going for place in places]))
    gone: set[int] = set()
    marks: list[tuple[int, int]] = []
    for places in going:
        jobs = [(place, changes.now_of(place.id)) for place in places]
        ended = {place.id for place, job in jobs if job is None or job.finished}
        gone |= ended
        for place, job in jobs if not ended else ():
            if place.marks:
                marks.append((place.id, LET_GO_MS))
            if job is not None and job.behind:
                changes.place(job.due_at(place.due_ms, changes.now_ms))
                dialect.came_first(job.queue_id, place.due_ms)
    dialect.for_each("mark_places", marks)
    return gone


def _going(places: Iterable[_OrderedRow]) -> list[_OrderedRow]:
    """Returns the first jobs of a key, up to one that stopped the key, without those that are marked as let go."""
    going: list[_OrderedRow] = []
    for place in places:
        if place.due_ms == STOPPED_MS:
            break
        if place.due_ms != LET_GO_MS:
            going.append(place)
    return going


async def leave_places(dialect: Dialect, changes: Changes, ids: Sequence[int]) -> None:
    """Does the same as `leave` for those of these jobs that have a place among the jobs of their keys."""
    found = await dialect.select_of("load_ordered", sorted(ids))
    ended = [EndedJob(job_id, (queue_id, text_of(key)), behind=False) for job_id, queue_id, key, _ in found]
    if ended:
        await leave(dialect, changes, ended)


def stopping_of(rows: Iterable[StateRow]) -> list[int]:
    """Ids of deleted jobs that have a key, and may have stopped it."""
    return [
        row.id
        for row in rows
        if row.options is not None and row.done_state == FAILED and options_of(row.options).ordering_key is not None
    ]


def ended_of(rows: Iterable[StateRow]) -> list[EndedJob]:
    """Returns deleted jobs that have a key, and had not ended before."""
    ended: list[EndedJob] = []
    for row in rows:
        if row.options is not None and row.done_state is None:
            options = options_of(row.options)
            if options.ordering_key is not None:
                key = (row.queue_id, options.ordering_key)
                ended.append(EndedJob(row.id, key, is_behind(options, row.run_after_ms)))
    return ended


async def own_due_ms(dialect: Dialect, jobs: Sequence[JobRecord]) -> dict[int, int]:
    """Returns, by id, the own due times of those of these jobs that wait behind others."""
    behind = sorted([job.id for job in jobs if is_behind(job.options, job.run_after_ms)])
    return {job_id: due_ms for job_id, _, _, due_ms in await dialect.select_of("load_ordered", behind)}
