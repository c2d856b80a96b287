-- The waiting job that comes ?5 places behind the first one after a key.
SELECT run_after_ms, id FROM ready
WHERE queue_id = ?1 AND priority = ?2 AND (run_after_ms, id) > (?3, ?4)
ORDER BY run_after_ms, id LIMIT 1 OFFSET ?5
