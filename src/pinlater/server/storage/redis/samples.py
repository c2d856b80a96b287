"""The history of queues: a hash for each step and time, with a queue's samples of all origins in one value.

Scripts without a number, since a save may be repeated; so none counts as a change for other servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from pinlater.server.storage.redis.arguments import encode
from pinlater.server.storage.redis.readers import Readers
from pinlater.server.storage.values import SampleRange, StoredSample

_STEP = Struct(">I")
_MOMENT = Struct(">Iq")
_ORIGIN = Struct(">H")
_DATA = Struct(">I")
# Samples that one script stores: Redis serves no other client meanwhile.
_SAMPLES_A_SCRIPT = 250


async def save(readers: Readers, samples: Sequence[StoredSample]) -> None:
    """Saves samples, each replacing the one with the same key."""
    for start in range(0, len(samples), _SAMPLES_A_SCRIPT):
        flat: list[bytes | int | str] = []
        for step_s, at_ms, queue, origin, data in samples[start : start + _SAMPLES_A_SCRIPT]:
            flat += (_MOMENT.pack(step_s, at_ms), at_ms, queue, origin, data)
        await readers.run("save_samples", encode(flat))


async def find(readers: Readers, ranges: Sequence[SampleRange]) -> list[StoredSample]:
    """The samples of these ranges, in order. A moment is read as a whole."""
    found: dict[int, list[StoredSample]] = {wanted.step_s: [] for wanted in ranges}
    unread = [wanted for wanted in ranges if wanted.queues is None or wanted.queues]
    while unread:
        answers = await readers.run("list_samples", encode([_packed(wanted) for wanted in unread]))
        further: list[SampleRange] = []
        for wanted, (more, rows) in zip(unread, answers, strict=True):
            read = sorted(_unpacked(rows))
            samples = found[wanted.step_s]
            samples += [one for one in read if wanted.after is None or one[1:4] > wanted.after]
            if more and len(samples) < wanted.limit:
                further.append(wanted._replace(from_ms=read[-1].at_ms + 1, after=None))
        unread = further
    return [sample for wanted in ranges for sample in found[wanted.step_s][: wanted.limit]]


def _packed(wanted: SampleRange) -> list[object]:
    """Makes a range for `list_samples.lua`. Times are strings, since Lua's numbers are doubles."""
    from_ms = wanted.from_ms if wanted.after is None else max(wanted.from_ms, wanted.after[0])
    queues = sorted(set(wanted.queues or ()))
    return [_STEP.pack(wanted.step_s), str(from_ms), str(wanted.until_ms), queues, wanted.limit]


def _unpacked(rows: Sequence[bytes]) -> Iterator[StoredSample]:
    for at in range(0, len(rows), 3):
        step_s, at_ms = _MOMENT.unpack(rows[at])
        queue, packed = rows[at + 1].decode(), rows[at + 2]
        position = 0
        while position < len(packed):
            begin = position + _ORIGIN.size
            end = begin + _ORIGIN.unpack_from(packed, position)[0]
            position = end + _DATA.size + _DATA.unpack_from(packed, end)[0]
            yield StoredSample(step_s, at_ms, queue, packed[begin:end].decode(), packed[end + _DATA.size : position])


async def trim(readers: Readers, step_s: int, before_ms: int, limit: int) -> int:
    """Deletes the oldest. Returns how many."""
    return int(await readers.run("trim_samples", _STEP.pack(step_s), before_ms, limit))
