SELECT id FROM ready WHERE queue_id = ? AND priority = ? ORDER BY run_after_ms, id LIMIT ?
