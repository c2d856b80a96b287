-- Counters that do not say what the rows say: rows were deleted by hand, or left out by the restore of a part.

-- name: list_miscounted()
-- Queues with a number that can't be: below zero, or above it where there is no row. Of one moment. With NOT EXISTS, MariaDB would read whole
-- indexes.
SELECT DISTINCT queues.name FROM (
  SELECT queue_id, priority, SUM(pending) AS pending, SUM(in_progress) AS in_progress, SUM(succeeded) AS succeeded, SUM(failed) AS failed
  FROM counters GROUP BY queue_id, priority
) AS counted JOIN queues ON queues.queue_id = counted.queue_id
WHERE LEAST(pending, in_progress, succeeded, failed) < 0
  OR (pending > 0 AND (
    SELECT 1 FROM ready WHERE ready.queue_id = counted.queue_id AND ready.priority = counted.priority LIMIT 1) IS NULL)
  OR (succeeded > 0 AND (
    SELECT 1 FROM done WHERE done.queue_id = counted.queue_id AND done.state = 2 AND done.priority = counted.priority LIMIT 1) IS NULL)
  OR (failed > 0 AND (
    SELECT 1 FROM done WHERE done.queue_id = counted.queue_id AND done.state = 3 AND done.priority = counted.priority LIMIT 1) IS NULL)
  OR (in_progress > 0 AND (SELECT MIN(id) FROM claims) IS NULL);

-- name: count_differences(queue_id)
-- By how much the rows of one queue exceed its counters, by priority. Of one moment: each transaction changes both by as much.
SELECT priority, CAST(SUM(pending) AS SIGNED), CAST(SUM(future) AS SIGNED), CAST(SUM(in_progress) AS SIGNED),
  CAST(SUM(succeeded) AS SIGNED), CAST(SUM(failed) AS SIGNED)
FROM (
  SELECT priority, COUNT(*) AS pending, SUM(flags & 2 <> 0) AS future, 0 AS in_progress, 0 AS succeeded, 0 AS failed
  FROM ready WHERE queue_id = :queue_id GROUP BY priority
  UNION ALL SELECT priority, 0, 0, COUNT(*), 0, 0 FROM claims WHERE queue_id = :queue_id GROUP BY priority
  UNION ALL SELECT priority, 0, 0, 0, SUM(state = 2), SUM(state = 3)
    FROM done FORCE INDEX (done_by_finish) WHERE queue_id = :queue_id GROUP BY priority
  UNION ALL SELECT priority, -pending, -future, -in_progress, -succeeded, -failed FROM counters WHERE queue_id = :queue_id
) AS compared GROUP BY priority;
