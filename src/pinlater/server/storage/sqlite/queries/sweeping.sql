-- Maintenance: due marks, deadlines, expiries, keys that have ended, and what deleted queues left.

-- name: count_ready_between(queue_id, priority, after_ms, after_id, until_ms, until_id, limit)
-- At most `limit` of the waiting jobs behind one key and up to another.
SELECT count(*) FROM (
  SELECT 1 FROM ready
  WHERE queue_id = :queue_id AND priority = :priority
    AND (run_after_ms, id) > (:after_ms, :after_id) AND (run_after_ms, id) <= (:until_ms, :until_id)
  LIMIT :limit
);

-- name: select_ready_after(queue_id, priority, after_ms, after_id, offset)
-- The waiting job `offset` places behind the first one after a key.
SELECT run_after_ms, id FROM ready
WHERE queue_id = :queue_id AND priority = :priority AND (run_after_ms, id) > (:after_ms, :after_id)
ORDER BY run_after_ms, id LIMIT 1 OFFSET :offset;

-- name: delete_expiries(expires_at_ms, id)
DELETE FROM expiries WHERE expires_at_ms = :expires_at_ms AND id = :id;

-- name: select_first_expiry()
SELECT expires_at_ms FROM expiries ORDER BY expires_at_ms LIMIT 1;

-- name: select_first_key_times()
-- When the first request key was seen and when the first timed unique key ends; NULL for none.
SELECT (SELECT seen_at_ms FROM request_keys ORDER BY seen_at_ms LIMIT 1),
  (SELECT until_ms FROM unique_keys WHERE until_ms IS NOT NULL ORDER BY until_ms LIMIT 1);

-- name: delete_old_request_keys(before_ms, limit)
DELETE FROM request_keys WHERE (queue_id, key) IN (
  SELECT queue_id, key FROM request_keys WHERE seen_at_ms < :before_ms ORDER BY seen_at_ms LIMIT :limit
);

-- name: delete_old_unique_keys(now_ms, limit)
-- Those that have ended by time.
DELETE FROM unique_keys WHERE (queue_id, key) IN (
  SELECT queue_id, key FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms <= :now_ms ORDER BY until_ms LIMIT :limit
);

-- name: select_ready_of(queue_id, limit)
-- Of a dropped queue; for `delete_waiting`.
SELECT id, priority, run_after_ms, 0 FROM ready WHERE queue_id = :queue_id LIMIT :limit;

-- name: delete_request_keys_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM request_keys WHERE queue_id = :queue_id AND key IN (
  SELECT key FROM request_keys WHERE queue_id = :queue_id LIMIT :limit
);

-- name: delete_unique_keys_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM unique_keys WHERE queue_id = :queue_id AND key IN (
  SELECT key FROM unique_keys WHERE queue_id = :queue_id LIMIT :limit
);
