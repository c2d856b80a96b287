-- The ranges are disjoint and in the order of the key, so the rows come as they lie.
SELECT priority, run_after_ms, id, flags, size FROM ready
WHERE queue_id = :queue_id AND (:ranges)
ORDER BY priority, run_after_ms, id LIMIT :limit
FOR UPDATE SKIP LOCKED
