SELECT run_after_ms, id FROM ready
WHERE queue_id = :queue_id AND priority = :priority
  AND (run_after_ms < :after_ms OR (run_after_ms = :after_ms AND id < :after_id))
ORDER BY run_after_ms DESC, id DESC LIMIT :limit
