-- Counters that do not say what the rows say: rows were deleted by hand, or left out by the restore of a part.

-- name: list_miscounted()
-- Queues with a number that can't be: below zero, or above it where there is no row. Of one moment of the file.
SELECT DISTINCT queues.name FROM queues JOIN counters AS counted ON counted.queue_id = queues.queue_id
WHERE min(pending, future, in_progress, succeeded, failed) < 0 OR future > pending
  OR (pending > 0 AND NOT EXISTS (
    SELECT 1 FROM ready WHERE ready.queue_id = counted.queue_id AND ready.priority = counted.priority))
  OR (succeeded > 0 AND NOT EXISTS (
    SELECT 1 FROM done WHERE done.queue_id = counted.queue_id AND done.state = 2 AND done.priority = counted.priority))
  OR (failed > 0 AND NOT EXISTS (
    SELECT 1 FROM done WHERE done.queue_id = counted.queue_id AND done.state = 3 AND done.priority = counted.priority))
  OR (in_progress > 0 AND NOT EXISTS (SELECT 1 FROM claims));

-- name: list_uncounted()
-- Queues that have jobs, waiting or claimed, of a priority without counters. Jumps from one priority of `ready` to the next.
WITH RECURSIVE waiting (place) AS (
  SELECT (SELECT queue_id * 65536 + priority FROM ready ORDER BY queue_id, priority LIMIT 1)
  UNION ALL
  SELECT (
    SELECT queue_id * 65536 + priority FROM ready WHERE (queue_id, priority) > (place / 65536, place % 65536)
    ORDER BY queue_id, priority LIMIT 1
  ) FROM waiting WHERE place IS NOT NULL
), found (queue_id, priority) AS (
  SELECT place / 65536, place % 65536 FROM waiting WHERE place IS NOT NULL UNION ALL SELECT queue_id, priority FROM claims
)
SELECT DISTINCT queue_id FROM found
WHERE NOT EXISTS (SELECT 1 FROM counters WHERE counters.queue_id = found.queue_id AND counters.priority = found.priority);

-- name: count_rows(queue_id)
-- Of one queue, by priority: how many jobs wait, are claimed, have succeeded and have failed.
SELECT priority, sum(pending), sum(in_progress), sum(succeeded), sum(failed) FROM (
  SELECT priority, count(*) AS pending, 0 AS in_progress, 0 AS succeeded, 0 AS failed FROM ready WHERE queue_id = :queue_id GROUP BY priority
  UNION ALL SELECT priority, 0, count(*), 0, 0 FROM claims WHERE queue_id = :queue_id GROUP BY priority
  UNION ALL SELECT priority, 0, 0, sum(state = 2), sum(state = 3) FROM done WHERE queue_id = :queue_id GROUP BY priority
) GROUP BY priority;
