SELECT finished_at_ms, id FROM done
WHERE queue_id = ?1 AND state = ?2 AND priority = ?3 AND (finished_at_ms, id) > (?4, ?5) AND finished_at_ms <= ?6
ORDER BY finished_at_ms, id LIMIT ?7
