"""Failed attempts in groups: one hash for each queue. `change_jobs.lua` counts them when it writes the changes of the jobs.

a<group>         about it: when it failed first, and its task, type and pattern, as a JSON list
n<group>         how many attempts
l<group>         the newest: its time, and the priority and id of its job, between spaces
h<hour> <group>  how many in that hour
g                how many groups
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pinlater.domain.failures import HOUR_MS, FailureKind
from pinlater.server.storage.changes import CountedFailure
from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.redis.writer import Writer
from pinlater.server.storage.values import StoredFailures

# How many queues one script checks for groups.
_QUEUES_A_LOOK = 1_000
_encode = msgspec.json.Encoder().encode
_About = tuple[int, str, str, str]
_decode = msgspec.json.Decoder(_About).decode


def values_of(failure: FailureKind, counted: CountedFailure, now_ms: int) -> list[bytes | int | str]:
    """Returns the arguments of `change_jobs.lua` for the failures of one group."""
    job = counted.job
    newest = f"{now_ms} {job.priority} {job.id}"
    about = _encode((now_ms, *failure))
    return [failure.group, about, counted.failures, newest, f"{now_ms // HOUR_MS}", f"{now_ms}"]


async def read(readers: Readers, queues: Mapping[str, bytes], from_hour: int) -> list[StoredFailures]:
    """The groups of these queues, with their hours."""
    found: list[StoredFailures] = []
    if queues:
        answers = await readers.run("list_failures", encode(list(queues.values())))
        for queue, fields in zip(queues, answers, strict=True):
            found += _groups(queue, fields, from_hour)
    return found


def _groups(queue: str, fields: Sequence[bytes], from_hour: int) -> list[StoredFailures]:
    values = {fields[at].decode(): fields[at + 1] for at in range(0, len(fields), 2)}
    hours: dict[str, dict[int, int]] = {}
    for field, value in values.items():
        if field[0] == "h":
            hour, _, name = field[1:].partition(" ")
            if int(hour) >= from_hour:
                hours.setdefault(name, {})[int(hour)] = int(value)
    groups = []
    for field, value in values.items():
        if field[0] == "a":
            name = field[1:]
            first_ms, task, error_type, pattern = _decode(value)
            last_ms, priority, job_id = map(int, values.get(f"l{name}", b"0 1 0").split())
            failures = int(values.get(f"n{name}", b"0"))
            groups.append(
                StoredFailures(
                    queue, name, task, error_type, pattern, failures, first_ms, last_ms, priority, job_id,
                    hours.get(name, {}),
                )
            )  # fmt: skip
    return groups


async def prune(
    writer: Writer, readers: Readers, queues: Sequence[bytes], before_ms: int, before_hour: int, limit: int
) -> int:
    """Deletes old groups. Reads first, because a change makes all servers refresh the shard. Reads one queue at a time, which Redis does in
    some milliseconds.
    """
    deleted = 0
    for start in range(0, len(queues), _QUEUES_A_LOOK):
        for queue in await readers.run("failing_queues", encode(queues[start : start + _QUEUES_A_LOOK])):
            [fields] = await readers.run("list_failures", encode([queue]))
            groups, newest, hours = _old_fields(fields, before_ms, before_hour, limit - deleted)
            if groups or hours:
                [count] = await writer.run("prune_failures", queue, encode((groups, newest, hours)))
                deleted += int(count)
            if deleted >= limit:
                return deleted
    return deleted


def _old_fields(
    fields: Sequence[bytes], before_ms: int, before_hour: int, limit: int
) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The groups that failed last before that time, the newest failure of each, and the fields of hours before that one."""
    groups: list[bytes] = []
    newest: list[bytes] = []
    hours: list[bytes] = []
    for at in range(0, len(fields), 2):
        field, value = fields[at], fields[at + 1]
        if len(groups) + len(hours) >= limit:
            break
        if field[:1] == b"l" and int(value.split()[0]) < before_ms:
            groups.append(field[1:])
            newest.append(value)
        elif field[:1] == b"h" and int(field[1:].split()[0]) < before_hour:
            hours.append(field)
    return groups, newest, hours
