SELECT id FROM ready WHERE queue_id = :queue_id AND priority = :priority ORDER BY run_after_ms, id LIMIT :limit
