"""Whether all keys of a shard say the same: each job is in the index of its state and in no other, sums are right, nothing is left over."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pinlater.domain.job import JobState
from pinlater.server.storage.options import BEHIND_MS, options_of
from pinlater.server.storage.redis.keys import INDEX_OF
from pinlater.server.storage.redis.packing import HAS_PAST, read_claim, read_job
from tests.databases.redis import RedisServer

_JOB = b"j"


def keys_of(server: RedisServer) -> list[bytes]:
    """All keys of the database."""
    return sorted(server.execute("KEYS", "*"))


class _Changed(Exception):
    """A key is gone that was there when the look began: a server is freeing keys of a deleted queue."""


def inconsistencies(server: RedisServer, front: bytes = b"pinlater{1}:", *, lost: bool = False) -> list[str]:
    """What is wrong, in words. `lost`: jobs' records were deleted behind our back; what they left isn't complained of.

    Servers change keys by whole scripts, but a look takes many commands. So what looks wrong is looked at again for a while.
    """
    with server.session() as ask:
        for pause_s in (*[0.1] * 10, 0.0):
            try:
                wrong = _inconsistencies(ask, front, lost)
            except _Changed as error:
                wrong = [str(error)]
            if not wrong:
                break
            time.sleep(pause_s)
    return wrong


def _inconsistencies(ask: Callable[..., Any], front: bytes, lost: bool) -> list[str]:
    wrong: list[str] = []
    names = [key.removeprefix(front) for key in ask("KEYS", "*") if key.startswith(front)]
    jobs = {name[1:] for name in names if name.startswith(_JOB) and len(name) == 14}
    claims: dict[bytes, bytes] = _fields(ask("HGETALL", front + b"h"))
    pasts: dict[bytes, bytes] = _fields(ask("HGETALL", front + b"p"))
    places: dict[bytes, set[bytes]] = {}
    for name in names:
        if name[:1] in INDEX_OF.values() and len(name) == 6:
            for job_id in ask("ZRANGE", front + name, 0, -1):
                places.setdefault(name[1:] + job_id, set()).add(name[:1])
    deadlines, expiries = set(ask("ZRANGE", front + b"c", 0, -1)) - {b""}, set(ask("ZRANGE", front + b"e", 0, -1))
    finished_bytes = 0
    for ref in jobs:
        record = ask("GET", front + _JOB + ref)
        if record is None:
            raise _Changed(f"{ref!r} is gone since the look began")
        claim, stored = read_claim(claims.get(ref, b"")), read_job(record)
        state = JobState.PENDING if claim is None else claim.state
        if places.get(ref) != {INDEX_OF[state]}:
            wrong.append(f"{ref!r} is {state.name} and in {places.get(ref)}")
        if (ref in deadlines) is not (state is JobState.IN_PROGRESS):
            wrong.append(f"{ref!r} is {state.name}; has a deadline: {ref in deadlines}")
        expires = options_of(stored.options).expires_ms is not None and state is JobState.PENDING
        if (ref in expiries) is not expires:
            wrong.append(f"{ref!r} is {state.name}; expires: {ref in expiries}")
        if bool(stored.flags & HAS_PAST) is not (ref in pasts):
            wrong.append(f"{ref!r} has flags {stored.flags} and a past: {ref in pasts}")
        if claim is not None and claim.size != len(record):
            wrong.append(f"{ref!r} has {len(record)} bytes, not {claim.size}")
        if claim is not None and claim.state is not JobState.IN_PROGRESS:
            finished_bytes += len(record)
    wrong += _ordering(ask, front, names, claims, lost)
    if not lost:
        for kind, refs in (("claims", claims), ("pasts", pasts), ("places", places)):
            wrong += [f"{ref!r} is gone and has left {kind}" for ref in refs if ref not in jobs]
        wrong += [f"{ref!r} is gone and has left a time" for ref in deadlines | expiries if ref not in jobs]
        counted = int(ask("GET", front + b"fb") or 0)
        if counted != finished_bytes:
            wrong.append(f"finished jobs have {finished_bytes} bytes, not {counted}")
    return wrong


def _ordering(
    ask: Callable[..., Any], front: bytes, names: Sequence[bytes], claims: Mapping[bytes, bytes], lost: bool
) -> list[str]:
    """Whether the first of each ordering key does not wait behind others, and all others do (`scripts/ordering.lua`)."""
    wrong: list[str] = []
    for queue in [name[2:] for name in names if name.startswith(b"dn") and len(name) == 6]:
        about: dict[bytes, bytes] = _fields(ask("HGETALL", front + b"dn" + queue))
        in_order = set(ask("ZRANGE", front + b"d" + queue, 0, -1))
        expected = {bytes([len(one[17:])]) + one[17:] + one[:8] + place for place, one in about.items()}
        if in_order != expected:
            wrong.append(f"queue {queue!r} has places {sorted(in_order ^ expected)} in one of two keys")
        seen = set[bytes]()
        for place, one in sorted(about.items(), key=lambda each: each[1][:8]):
            ref, key = queue + place, one[17:]
            score = ask("ZSCORE", front + b"r" + ref[:5], ref[5:])
            claim = read_claim(claims.get(ref, b""))
            if score is None and (claim is None or claim.state is not JobState.IN_PROGRESS) and not lost:
                wrong.append(f"{ref!r} has a place under its ordering key, and neither waits nor is in hand")
            is_behind = float(score or 0) > BEHIND_MS
            if (key in seen, key in seen) != (is_behind, one[16] == 1):
                wrong.append(f"{ref!r} is behind others: {key in seen}; its score {score}, its mark {one[16]}")
            seen.add(key)
    return wrong


def _fields(flat: Any) -> dict[bytes, bytes]:
    return dict(flat) if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
