SELECT run_after_ms FROM ready WHERE queue_id = ? AND priority = ? ORDER BY run_after_ms LIMIT 1
