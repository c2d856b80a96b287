-- Failed attempts in groups, for `relational/failures.py`.

-- name: delete_old_failures(before_ms, limit)
DELETE FROM failures WHERE (queue_id, name) IN (
  SELECT queue_id, name FROM failures WHERE last_ms < :before_ms ORDER BY last_ms LIMIT :limit
);

-- name: delete_old_failure_hours(before_hour, limit)
DELETE FROM failure_hours WHERE (queue_id, hour, name) IN (
  SELECT queue_id, hour, name FROM failure_hours WHERE hour < :before_hour ORDER BY hour LIMIT :limit
);

-- name: delete_failures_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM failures WHERE queue_id = :queue_id AND (queue_id, name) IN (
  SELECT queue_id, name FROM failures WHERE queue_id = :queue_id LIMIT :limit
);

-- name: delete_failure_hours_of(queue_id, limit)
-- Of a dropped queue.
DELETE FROM failure_hours WHERE queue_id = :queue_id AND (queue_id, hour, name) IN (
  SELECT queue_id, hour, name FROM failure_hours WHERE queue_id = :queue_id LIMIT :limit
);
