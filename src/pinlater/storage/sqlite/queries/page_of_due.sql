SELECT run_after_ms, id FROM ready
WHERE queue_id = ? AND priority = ? AND (run_after_ms, id) < (?, ?)
ORDER BY run_after_ms DESC, id DESC LIMIT ?
