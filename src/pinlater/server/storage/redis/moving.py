"""Jobs that get another priority: all of their data in Redis is renamed, in one script."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.server.storage import outcomes
from pinlater.server.storage.redis.access import TRIES, Access, conflict
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.keys import may_exist, ref_of
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.values import Acked, JobKey


async def move(access: Access, keys: Sequence[JobKey], priority: int, now_ms: int) -> list[Acked]:
    """Moves waiting and failed jobs to another priority."""
    queues = access.ids_of([key.queue for key in keys])
    ids = dict(queues)
    refs = [
        ref_of(ids[key.queue], key.priority, key.id)
        for asked in keys
        for key in (asked, asked._replace(priority=priority))
        if key.queue in ids and may_exist(key)
    ]
    for _ in range(TRIES):
        changes = Changes(now_ms)
        await changes.load(access.readers, refs, queues)
        await changes.find_behind(access.readers)
        answers = outcomes.move(changes, keys, priority)
        await _show_moved(access.readers, changes)
        if await access.write(changes, now_ms, queues) == [0]:
            return answers
    raise conflict()


async def _show_moved(readers: Readers, changes: Changes) -> None:
    """Groups that show one of the jobs that the call moves show it under its priority, unless another job fails meanwhile."""
    moved = {job.id: job for before, job in changes.moves() if job.priority != before.priority and job.attempts_ended}
    for queue in {changes.found(job).queue for job in moved.values()}:
        [fields] = await readers.run("list_failures", encode([queue]))
        for at in range(0, len(fields), 2):
            field, value = fields[at], fields[at + 1]
            if field[:1] == b"l" and (job := moved.get(int(value.split()[2]))) is not None:
                newest = f"{int(value.split()[0])} {job.priority} {job.id}"
                changes.writing.single("SHOWN", queue, field, value, newest)
