INSERT INTO counters (queue_id, priority, writer, pending, future, in_progress, succeeded, failed, enqueued_total, claimed_total,
  succeeded_total, failed_total, retried_total)
VALUES :rows
ON DUPLICATE KEY UPDATE
  pending = pending + VALUES(pending), future = future + VALUES(future), in_progress = in_progress + VALUES(in_progress),
  succeeded = succeeded + VALUES(succeeded), failed = failed + VALUES(failed),
  enqueued_total = enqueued_total + VALUES(enqueued_total), claimed_total = claimed_total + VALUES(claimed_total),
  succeeded_total = succeeded_total + VALUES(succeeded_total), failed_total = failed_total + VALUES(failed_total),
  retried_total = retried_total + VALUES(retried_total)
