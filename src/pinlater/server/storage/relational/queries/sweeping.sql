-- Maintenance: due marks, deadlines, expiries, keys that have ended, and what deleted queues left.

-- name: overdue_claims(now_ms, limit)
SELECT id FROM claims WHERE deadline_ms < :now_ms ORDER BY deadline_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: expired_jobs(now_ms, limit)
SELECT expires_at_ms, id FROM expiries WHERE expires_at_ms < :now_ms ORDER BY expires_at_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: select_done_of(queue_id, limit)
-- Of a dropped queue.
SELECT id FROM done FORCE INDEX (done_by_finish) WHERE queue_id = :queue_id LIMIT :limit FOR UPDATE SKIP LOCKED;
