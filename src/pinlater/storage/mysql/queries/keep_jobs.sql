INSERT IGNORE INTO kept_jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body)
SELECT id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body FROM jobs FORCE INDEX (PRIMARY) WHERE id IN (:ids)
