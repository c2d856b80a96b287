-- Failed attempts in groups, for `relational/failures.py`.

-- name: failure_names(queue_id)
SELECT name FROM failures WHERE queue_id = :queue_id;

-- name: count_failures(queue_id, name, task, error_type, pattern, failures, first_ms, last_ms, priority, id)
INSERT INTO failures (queue_id, name, task, error_type, pattern, failures, first_ms, last_ms, priority, id)
VALUES :rows
ON CONFLICT (queue_id, name) DO UPDATE SET failures = failures + excluded.failures, last_ms = excluded.last_ms,
  priority = excluded.priority, id = excluded.id;

-- name: count_failure_hours(queue_id, hour, name, failures)
INSERT INTO failure_hours (queue_id, hour, name, failures)
VALUES :rows
ON CONFLICT (queue_id, hour, name) DO UPDATE SET failures = failures + excluded.failures;

-- name: failure_jobs(queue_id)
SELECT id FROM failures WHERE queue_id = :queue_id;

-- name: move_failures(queue_id, id, priority)
UPDATE failures SET priority = :priority WHERE queue_id = :queue_id AND id = :id;

-- name: list_failures(queues)
SELECT q.name, f.name, f.task, f.error_type, f.pattern, f.failures, f.first_ms, f.last_ms, f.priority, f.id
FROM queues q JOIN failures f ON f.queue_id = q.queue_id WHERE q.name IN (:queues);

-- name: list_failure_hours(queues, from_hour)
SELECT q.name, h.name, h.hour, h.failures
FROM queues q JOIN failure_hours h ON h.queue_id = q.queue_id WHERE q.name IN (:queues) AND h.hour >= :from_hour;

-- name: old_failures(before_ms, limit)
SELECT 1 FROM failures WHERE last_ms < :before_ms LIMIT :limit;

-- name: old_failure_hours(before_hour, limit)
SELECT 1 FROM failure_hours WHERE hour < :before_hour LIMIT :limit;
