-- Counters of the queues in a JSON list.
SELECT queues.name, counters.priority, counters.pending, counters.future, counters.in_progress, counters.succeeded,
  counters.failed, counters.enqueued_total, counters.claimed_total, counters.succeeded_total, counters.failed_total,
  counters.retried_total,
  CASE WHEN counters.pending > counters.future THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority ORDER BY ready.run_after_ms LIMIT 1
  ) END
FROM queues JOIN counters ON counters.queue_id = queues.queue_id
WHERE queues.name IN (SELECT value FROM json_each(?))
ORDER BY queues.name, counters.priority
