SELECT finished_at_ms, id FROM done
WHERE queue_id = ? AND state = ? AND priority = ? AND (finished_at_ms, id) < (?, ?)
ORDER BY finished_at_ms DESC, id DESC LIMIT ?
