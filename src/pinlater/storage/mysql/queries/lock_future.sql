SELECT queue_id, priority, run_after_ms, id FROM future
WHERE run_after_ms <= :now_ms ORDER BY run_after_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED
