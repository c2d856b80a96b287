"""Acks, checkpoints, heartbeats, releases and cancels.

Most acks are plain: a success without a status, of a job at its first attempt. A call that contains only plain acks is one script, which
checks that they are plain. For everything else the call loads the jobs, decides (`outcomes.py`) and writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from pinlater.domain.job import JobState
from pinlater.server.storage import outcomes
from pinlater.server.storage.decide import Release
from pinlater.server.storage.outcomes import SUCCEEDED
from pinlater.server.storage.redis.access import TRIES, Access, conflict
from pinlater.server.storage.redis.arguments import encode, strings
from pinlater.server.storage.redis.changes import Changes
from pinlater.server.storage.redis.keys import QUEUE_BYTES, may_exist, ref_of
from pinlater.server.storage.redis.packing import I64
from pinlater.server.storage.values import NOT_FOUND, Acked, ClaimRef, JobAck, JobCheckpoint, JobKey

Item = TypeVar("Item")


class _Plain:
    """Acks that look plain: the data that scripts need of them."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.refs: list[bytes] = []
        self._tokens: list[bytes] = []

    def add(self, place: int, ref: bytes, token: str | None) -> None:
        self.places.append(place)
        self.refs.append(ref)
        self._tokens.append(b"" if token is None else b"\1" + token.encode())

    @property
    def packed(self) -> tuple[bytes, bytes]:
        return b"".join(self.refs), strings(self._tokens)


async def finish(access: Access, acks: Sequence[JobAck], now_ms: int) -> list[Acked]:
    """Finishes plain acks in a script; the others are decided here and written together with the plain ones."""
    results = [SUCCEEDED] * len(acks)
    known_odd: set[int] = set()
    if len({ack.key for ack in acks}) != len(acks):
        known_odd.update(range(len(acks)))  # the first of two acks of one job counts
    queues = access.ids_of([ack.key.queue for ack in acks])
    about = encode(([name for name, _ in queues], [queue for _, queue in queues]))
    for _ in range(TRIES):
        plain, others = _sorted_out(access, acks, known_odd, results)
        if not others:
            if not plain.refs:
                return results
            answer = await access.writer.run("finish_jobs", now_ms, I64.pack(now_ms), about, *plain.packed)
            if answer[0] == 0:
                access.tell_came_first(answer)
                return results
            odd = answer[1]
        else:
            changes = Changes(now_ms)
            left = [acks[place] for place in others]
            await changes.load(access.readers, _refs(access, [ack.key for ack in left]), queues)
            answers = outcomes.finish(changes, left)
            written = await access.write(changes, now_ms, queues, plain.packed if plain.refs else False)
            if written == [0]:
                for place, answer in zip(others, answers, strict=True):
                    results[place] = answer
                return results
            odd = written[1] if written[0] == 1 else []
        known_odd.update(plain.places[at - 1] for at in odd)
    raise conflict()


def _sorted_out(
    access: Access, acks: Sequence[JobAck], known_odd: set[int], results: list[Acked]
) -> tuple[_Plain, list[int]]:
    plain, others = _Plain(), []
    queues = access.queues
    for place, (key, succeeded, token, addition, *_) in enumerate(acks):
        queue = queues.get(key.queue)
        if queue is None or not may_exist(key):
            results[place] = NOT_FOUND
        elif succeeded and not addition and place not in known_odd:
            plain.add(place, ref_of(queue, key.priority, key.id), token)
        else:
            others.append(place)
    return plain, others


async def checkpoint(access: Access, checkpoints: Sequence[JobCheckpoint], now_ms: int) -> list[Acked]:
    """Progress of claimed jobs."""
    return await _decide(access, checkpoints, [item.key for item in checkpoints], now_ms, outcomes.checkpoint)


async def extend(access: Access, claims: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Renews claims, for heartbeats."""
    return await _decide(access, claims, [claim.key for claim in claims], now_ms, outcomes.extend)


async def release(access: Access, claims: Sequence[ClaimRef], now_ms: int) -> list[Acked]:
    """Releases claims."""
    return await _decide(access, claims, [claim.key for claim in claims], now_ms, outcomes.release)


async def cancel(
    access: Access, keys: Sequence[JobKey], now_ms: int, only_state: JobState | None = None
) -> list[Acked]:
    """Cancels jobs that wait, are claimed, or both. A claim ends whichever worker holds it."""
    return await _decide(access, keys, keys, now_ms, lambda changes, items: outcomes.cancel(changes, items, only_state))


async def release_claims(access: Access, claims: Sequence[tuple[bytes, str]], now_ms: int) -> set[str]:
    """Gives back claims (ref, token) that no worker knows. Returns the names of their queues."""
    tokens = dict(claims)
    names = await access.names_of(ref[:QUEUE_BYTES] for ref in tokens)

    def decide(changes: Changes) -> set[str]:
        queues = set()
        for ref, found in changes.loaded.items():
            held = found.record.token == tokens[ref] and found.queue in names
            if held and changes.apply(found.record, Release()) is not None:
                queues.add(names[found.queue])
        return queues

    return await access.change(list(tokens), now_ms, decide, ())


def _refs(access: Access, keys: Sequence[JobKey]) -> list[bytes]:
    queues = access.queues
    return [
        ref_of(queue, key.priority, key.id)
        for key in keys
        if (queue := queues.get(key.queue)) is not None and may_exist(key)
    ]


async def _decide(
    access: Access,
    items: Sequence[Item],
    keys: Sequence[JobKey],
    now_ms: int,
    decide_all: Callable[[Changes, Sequence[Item]], list[Acked]],
) -> list[Acked]:
    """Loads the jobs, decides, writes. A job that is named by the wrong queue or priority is not found."""
    names = [key.queue for key in keys]
    return await access.change(_refs(access, keys), now_ms, lambda changes: decide_all(changes, items), names)
