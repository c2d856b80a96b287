-- The history of queues.

-- name: save_samples(step_s, at_ms, queue, origin, data)
INSERT OR REPLACE INTO samples (step_s, at_ms, queue, origin, data) VALUES (:step_s, :at_ms, :queue, :origin, :data);

-- name: list_samples(step_s, from_ms, until_ms, after_ms, after_queue, after_origin, limit)
-- Of all queues.
SELECT step_s, at_ms, queue, origin, data FROM samples
WHERE step_s = :step_s AND at_ms >= :from_ms AND at_ms < :until_ms
  AND (at_ms, queue, origin) > (:after_ms, :after_queue, :after_origin)
ORDER BY at_ms, queue, origin LIMIT :limit;

-- name: list_samples_of(step_s, from_ms, until_ms, after_ms, after_queue, after_origin, limit, queues)
-- Of a JSON list of queues.
SELECT step_s, at_ms, queue, origin, data FROM samples
WHERE queue IN (SELECT value FROM json_each(:queues)) AND step_s = :step_s AND at_ms >= :from_ms AND at_ms < :until_ms
  AND (at_ms, queue, origin) > (:after_ms, :after_queue, :after_origin)
ORDER BY at_ms, queue, origin LIMIT :limit;

-- name: delete_samples(step_s, before_ms, limit)
-- The oldest of a step.
DELETE FROM samples WHERE (step_s, at_ms, queue, origin) IN (
  SELECT step_s, at_ms, queue, origin FROM samples WHERE step_s = :step_s AND at_ms < :before_ms
  ORDER BY at_ms, queue, origin LIMIT :limit
);
