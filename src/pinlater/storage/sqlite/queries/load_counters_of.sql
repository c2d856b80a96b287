SELECT queue_id, priority, pending, future, mark_ms, mark_id, in_progress, succeeded, failed, enqueued_total, claimed_total,
  succeeded_total, failed_total, retried_total
FROM counters
WHERE queue_id = ?
ORDER BY priority
