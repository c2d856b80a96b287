-- The oldest jobs of a state, for an operator's retries and deletions and for the garbage collection.

-- name: oldest_ready(queue_id, priority, limit)
-- For `delete_waiting`. Rows that another transaction has locked are skipped.
SELECT id, priority, run_after_ms, flags & 2 FROM ready WHERE queue_id = :queue_id AND priority = :priority
ORDER BY run_after_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: oldest_done(queue_id, state, priority, after_ms, after_id, until_ms, limit)
-- Those after :after_ms and :after_id that finished until :until_ms.
SELECT finished_at_ms, id FROM done FORCE INDEX (done_by_finish)
WHERE queue_id = :queue_id AND state = :state AND priority = :priority
  AND (finished_at_ms > :after_ms OR (finished_at_ms = :after_ms AND id > :after_id)) AND finished_at_ms <= :until_ms
ORDER BY finished_at_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;
