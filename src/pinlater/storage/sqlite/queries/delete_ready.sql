DELETE FROM ready WHERE queue_id = ? AND priority = ? AND run_after_ms = ? AND id = ?
