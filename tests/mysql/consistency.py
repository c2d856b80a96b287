"""Whether what a shard's tables say of the same thing agrees: the check behind the tests of failures, for load that still runs, too.

Every transaction leaves the tables in agreement, so any snapshot must be. Knows the tables, and of the store's code one number.
"""

from __future__ import annotations

from typing import Any

from pinlater.server.storage.options import BEHIND_MS, LET_GO_MS, STOPPED_MS
from tests.databases.database import DatabaseServer

_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"

# A queue and priority by the counters, and by counting.
_COUNTED = """
SELECT queue_id, priority, SUM(pending), SUM(future), SUM(in_progress), SUM(succeeded), SUM(failed) FROM counters GROUP BY 1, 2
"""
_SCANNED = """
SELECT queue_id, priority, SUM(pending), SUM(future), SUM(in_progress), SUM(succeeded), SUM(failed) FROM (
  SELECT queue_id, priority, COUNT(*) AS pending, SUM(flags & 2 <> 0) AS future, 0 AS in_progress, 0 AS succeeded, 0 AS failed
  FROM ready GROUP BY 1, 2
  UNION ALL SELECT queue_id, priority, 0, 0, COUNT(*), 0, 0 FROM claims GROUP BY 1, 2
  UNION ALL SELECT queue_id, priority, 0, 0, 0, SUM(state = 2), SUM(state = 3) FROM done GROUP BY 1, 2
) AS rows_there WHERE queue_id IN (SELECT queue_id FROM queues) GROUP BY 1, 2
"""

_PLACES = """(
  SELECT id, queue_id, priority, 'ready' AS place, run_after_ms, flags, size FROM ready
  UNION ALL SELECT id, queue_id, priority, 'claims', NULL, flags, NULL FROM claims
  UNION ALL SELECT id, queue_id, priority, 'done', NULL, NULL, NULL FROM done
)"""
_JOBS = "(SELECT jobs.* FROM jobs JOIN queues ON queues.queue_id = jobs.queue_id)"

# Each gives one text for each thing that is wrong.
_CHECKS = [
    # a job is in one state
    f"SELECT CONCAT('job ', id, ' is in ', GROUP_CONCAT(place ORDER BY place)) FROM {_PLACES} AS places GROUP BY id HAVING COUNT(*) > 1",
    # a row names a job of the same queue and priority
    f"""
    SELECT CONCAT('job ', places.id, ' is in ', place, ' and not stored so')
    FROM {_PLACES} AS places JOIN queues ON queues.queue_id = places.queue_id
    LEFT JOIN {_JOBS} AS jobs ON jobs.id = places.id AND jobs.queue_id = places.queue_id AND jobs.priority = places.priority
    WHERE jobs.id IS NULL
    """,
    # a waiting row says of its job what the job says
    f"""
    SELECT CONCAT('the waiting row of job ', ready.id, ' says ', ready.run_after_ms, ', flags ', ready.flags, ', size ', ready.size)
    FROM ready JOIN {_JOBS} AS jobs ON jobs.id = ready.id LEFT JOIN progress ON progress.id = ready.id
    WHERE ready.run_after_ms <> COALESCE(progress.run_after_ms, jobs.run_after_ms)
      OR (ready.flags & 1 <> 0) <> (progress.id IS NOT NULL) OR (ready.flags & 5 = 0 AND jobs.options IS NOT NULL)
      OR ready.size <> OCTET_LENGTH(COALESCE(progress.body, jobs.body))
    """,
    # a claim knows whether its job has a past, which is more than another run-after since the job waits no longer behind others
    f"""
    SELECT CONCAT('the claim of job ', claims.id, ' has flags ', claims.flags)
    FROM claims JOIN {_JOBS} AS jobs ON jobs.id = claims.id LEFT JOIN progress ON progress.id = claims.id
    WHERE IF(claims.flags & 1, progress.id IS NULL, progress.id IS NOT NULL AND NOT (claims.flags & 4
      AND progress.updated_at_ms = jobs.created_at_ms AND progress.attempts_ended = 0 AND progress.attempts = '[]'
      AND progress.body IS NULL))
    """,
    # a job that expires is on the list of those
    f"""
    SELECT CONCAT('job ', ready.id, ' would never expire')
    FROM ready JOIN {_JOBS} AS jobs ON jobs.id = ready.id
    LEFT JOIN expiries ON expires_at_ms = JSON_EXTRACT(jobs.options, '$.expires_ms') AND expiries.id = jobs.id
    WHERE JSON_EXTRACT(jobs.options, '$.expires_ms') IS NOT NULL AND expiries.id IS NULL
    """,
    # a job that is counted as future will be counted as due, unless it waits behind others under its ordering key
    """
    SELECT CONCAT('job ', ready.id, ' would count as future for ever')
    FROM ready JOIN queues ON queues.queue_id = ready.queue_id
    LEFT JOIN future ON future.run_after_ms = ready.run_after_ms AND future.id = ready.id
    WHERE ready.flags & 2 AND ready.run_after_ms <= 1 << 46
      AND (future.id IS NULL OR future.queue_id <> ready.queue_id OR future.priority <> ready.priority)
    """,
    # a key names a job that may hold it: scope 0 while it waits, 1 until it has ended, 2 for a time
    f"""
    SELECT CONCAT('key ', HEX(unique_key), ' of scope ', scope, ' names job ', unique_keys.id, ', which is in ',
      COALESCE(place, 'no place'))
    FROM unique_keys JOIN queues ON queues.queue_id = unique_keys.queue_id LEFT JOIN {_PLACES} AS places ON places.id = unique_keys.id
    WHERE scope <> 2 AND (place IS NULL OR place = 'done' OR (scope = 0 AND place <> 'ready'))
    """,
    # a place under an ordering key is that of a job that has not ended, or has stopped its key
    f"""
    SELECT CONCAT('job ', ordered.id, ' has a place under its ordering key, and is in ', COALESCE(place, 'no place'))
    FROM ordered JOIN queues ON queues.queue_id = ordered.queue_id LEFT JOIN {_PLACES} AS places ON places.id = ordered.id
    WHERE place IS NULL OR (place = 'done') <> (due_ms = {STOPPED_MS})
    """,
    # the first of an ordering key does not wait behind others, and all others do but those that were let go
    f"""
    SELECT CONCAT('job ', ordered.id, ' is number ', number, ' of its ordering key, the first is ', first, ', its run-after ',
      COALESCE(run_after_ms, 'none'))
    FROM ordered JOIN queues ON queues.queue_id = ordered.queue_id LEFT JOIN ready ON ready.id = ordered.id
    JOIN (SELECT queue_id, ordering_key, MIN(number) AS first FROM ordered GROUP BY 1, 2) AS firsts
      ON firsts.queue_id = ordered.queue_id AND firsts.ordering_key = ordered.ordering_key
    WHERE (number = first OR due_ms = {LET_GO_MS}) = (COALESCE(run_after_ms, 0) > {BEHIND_MS})
    """,
    # a job that waits behind others has a place
    f"""
    SELECT CONCAT('job ', ready.id, ' waits for ever behind no other') FROM ready JOIN queues ON queues.queue_id = ready.queue_id
    LEFT JOIN ordered ON ordered.id = ready.id WHERE run_after_ms > {BEHIND_MS} AND ordered.id IS NULL
    """,
    # no total runs backwards
    "SELECT CONCAT('queue ', queue_id, ' has a negative total') FROM counters WHERE LEAST(enqueued_total, claimed_total) < 0",
]
_NOWHERE = f"""
SELECT CONCAT('job ', jobs.id, ' is in no state') FROM {_JOBS} AS jobs
LEFT JOIN {_PLACES} AS places ON places.id = jobs.id WHERE places.id IS NULL
"""


async def inconsistencies(server: DatabaseServer, database: str, *, deleted: bool = False) -> list[str]:
    """What is wrong in a shard's tables, a sentence each. `deleted`: jobs were deleted, which may leave their stored bodies for a while."""
    async with server.connect(database=database, autocommit=False) as connection, connection.cursor() as cursor:

        async def ask(statement: str) -> list[tuple[Any, ...]]:
            await cursor.execute(statement)
            return list(await cursor.fetchall())

        await ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        kept = await ask(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'kept_jobs'"
        )
        await ask(_SNAPSHOT)
        counted = {line[:2]: tuple(map(int, line[2:])) for line in await ask(_COUNTED)}
        scanned = {line[:2]: tuple(map(int, line[2:])) for line in await ask(_SCANNED)}
        nothing = (0,) * 5
        wrong = [
            f"queue {key[0]}, priority {key[1]}: counted {counted.get(key, nothing)}, there are {scanned.get(key, nothing)} "
            "(pending, of these future, in progress, succeeded, failed)"
            for key in sorted(counted.keys() | scanned.keys())
            if counted.get(key, nothing) != scanned.get(key, nothing)
        ]
        for check in _CHECKS if deleted else [*_CHECKS, _NOWHERE]:
            if kept:
                check = check.replace(_JOBS, f"(SELECT * FROM {_JOBS} AS jobs UNION SELECT * FROM kept_jobs)")
            wrong += [line[0] for line in await ask(check)]
        await ask("COMMIT")
    return wrong
