-- The history of queues.

-- name: save_samples(rows)
INSERT INTO samples (step_s, at_ms, queue, origin, data) VALUES :rows ON DUPLICATE KEY UPDATE data = VALUES(data);

-- name: list_samples(step_s, from_ms, until_ms, after_ms, after_queue, after_origin, limit)
-- Of all queues.
SELECT step_s, at_ms, queue, origin, data FROM samples FORCE INDEX (PRIMARY)
WHERE step_s = :step_s AND at_ms >= :from_ms AND at_ms < :until_ms
  AND (at_ms > :after_ms OR (at_ms = :after_ms AND (queue > :after_queue OR (queue = :after_queue AND origin > :after_origin))))
ORDER BY step_s, at_ms, queue, origin LIMIT :limit;

-- name: list_samples_of(queues, step_s, from_ms, until_ms, after_ms, after_queue, after_origin, limit)
-- Of some queues.
SELECT step_s, at_ms, queue, origin, data FROM samples FORCE INDEX (samples_by_queue)
WHERE queue IN (:queues) AND step_s = :step_s AND at_ms >= :from_ms AND at_ms < :until_ms
  AND (at_ms > :after_ms OR (at_ms = :after_ms AND (queue > :after_queue OR (queue = :after_queue AND origin > :after_origin))))
ORDER BY at_ms, queue, origin LIMIT :limit;

-- name: delete_samples(step_s, before_ms, limit)
-- The oldest of a step.
DELETE FROM samples WHERE step_s = :step_s AND at_ms < :before_ms ORDER BY step_s, at_ms, queue, origin LIMIT :limit;
