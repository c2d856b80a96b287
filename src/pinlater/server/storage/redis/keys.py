"""The names of a shard's keys, and how a job is named in them. All begin with the shard's part, `pinlater{1}:`, and so share a slot.

Queues and jobs have short names: a queue is its number (4 bytes), a *line* is a queue and a priority (5 bytes), a *ref* is a line and a
job's id (13 bytes, big-endian, so that refs and ids sort as the numbers do; as a Lua number an id would lose digits).

    meta     HASH   schema, last queue number, how many writers there were, secret, shard map and since when; p<slot> -> lease of a server
                    and the schema of its program, which servers of schema 1 do not write
    q        HASH   queue's name -> queue
    qn       HASH   queue -> its name
    qc       HASH   queue -> paused ('0' or '1') and settings, at its home with `order`; nothing if nothing is set
    qd       ZSET   deleted queues, by when, for a day: name
    pr       HASH   queue -> its priorities, a byte each; and '' -> '', from which its loss is seen
    z        SET    deleted queues whose rows are still to be freed
    j<ref>   STRING a job: fixed fields, options, body; written once, unless a checkpoint brings a new body
    p        HASH   ref -> the job's past: attempts, errors, status; from the first change on
    h        HASH   ref -> the job's claim, or how it finished; nothing while it waits
    r<line>  ZSET   waiting, by run-after: id
    i<line>  ZSET   in progress, by claim time: id
    s<line>  ZSET   succeeded, by finish time: id
    f<line>  ZSET   failed, by finish time: id
    c        ZSET   all claims by deadline: ref; and '' at the end of time, from which its loss is seen
    e        ZSET   waiting jobs that expire, by when: ref
    u<queue> HASH   unique key -> scope, priority, id, end
    t        ZSET   unique keys that end by time, by when: queue and key
    k<queue> HASH   request key -> when it was seen, fingerprint, answer
    o        ZSET   request keys, by when they were seen: queue and key
    n<line>  HASH   totals: e(nqueued) c(laimed) s(ucceeded) f(ailed) r(etried) l(ost) d(eleted while waiting)
    a        ZSET   changes that made jobs ready, by their number: queue and writer, the newest of each
    an       STRING the number of the newest of these
    au       ZSET   entries of the trail, all with score 0: id, '|' and content
    g<moment> HASH samples of all queues of a moment, which is a step (4 bytes) and a time (8): queue -> its samples by origin
    y<step>  ZSET   moments with samples of a step, by time: moment
    b<run>   HASH   copies of the jobs that a run deleted, by the place of the call that did
    l<run>   ZSET   these places, all with score 0
    cr       ZSET   runs with copies, by when the newest was made: run
    d<queue> ZSET   live jobs with ordering keys, all with score 0: a key's length, key, number, priority, id
    dn<queue> HASH priority and id -> number, when the job is due by itself, whether it goes, is behind others or stops its key, the key
    v<queue> HASH   its failures in groups, see `failures.py`
    fb       STRING bytes of finished jobs
    top      STRING the highest id that was stored (8 bytes)
    servers HASH   slot -> who has it
    w<writer> STRING lease, number and answer of the writer's newest call
    x        never there
"""

from __future__ import annotations

from struct import Struct

from pinlater.domain.job import JobState
from pinlater.server.storage.values import JobKey

_REF = Struct(">4sBq")
_ID = Struct(">q")

WAITING, IN_PROGRESS, SUCCEEDED, FAILED = b"r", b"i", b"s", b"f"
INDEX_OF = {
    JobState.PENDING: WAITING,
    JobState.IN_PROGRESS: IN_PROGRESS,
    JobState.SUCCEEDED: SUCCEEDED,
    JobState.FAILED: FAILED,
}
QUEUE_BYTES = 4
LINE_BYTES = 5


def front_of(tag: str) -> bytes:
    """Returns what all keys of a shard begin with."""
    return tag.encode() + b":"


def packed_id(job_id: int) -> bytes:
    """Returns the id in the form that indexes have."""
    return _ID.pack(job_id)


def id_of(packed: bytes) -> int:
    job_id: int = _ID.unpack(packed)[0]
    return job_id


def line_of(queue: bytes, priority: int) -> bytes:
    return queue + bytes((priority,))


def ref_of(queue: bytes, priority: int, job_id: int) -> bytes:
    return _REF.pack(queue, priority, job_id)


def parts_of(ref: bytes) -> tuple[bytes, int, int]:
    """Returns queue, priority and id."""
    queue, priority, job_id = _REF.unpack(ref)
    return queue, priority, job_id


PRIORITY_MAX = 255  # a byte of a line's name


def may_exist(key: JobKey) -> bool:
    """Returns whether any job could have this name; others can't even be packed."""
    return 0 <= key.priority <= PRIORITY_MAX and 0 <= key.id < 2**63
