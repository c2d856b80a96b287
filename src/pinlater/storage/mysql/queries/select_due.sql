SELECT priority, run_after_ms, id, flags, size FROM ready
WHERE queue_id = :queue_id AND (:ranges)
ORDER BY priority, run_after_ms, id LIMIT :limit
