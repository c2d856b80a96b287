-- Counters of some queues, summed over all writers.
SELECT queues.name, counters.priority, CAST(SUM(pending) AS SIGNED), CAST(GREATEST(SUM(future), 0) AS SIGNED),
  CAST(SUM(in_progress) AS SIGNED), CAST(SUM(succeeded) AS SIGNED), CAST(SUM(failed) AS SIGNED),
  CAST(SUM(enqueued_total) AS SIGNED), CAST(SUM(claimed_total) AS SIGNED), CAST(SUM(succeeded_total) AS SIGNED),
  CAST(SUM(failed_total) AS SIGNED), CAST(SUM(retried_total) AS SIGNED),
  CASE WHEN SUM(pending) > SUM(future) THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority ORDER BY ready.run_after_ms LIMIT 1
  ) END
FROM counters JOIN queues ON queues.queue_id = counters.queue_id
WHERE :which
GROUP BY queues.name, counters.queue_id, counters.priority
ORDER BY queues.name, counters.priority
