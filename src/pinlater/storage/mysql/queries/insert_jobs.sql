INSERT INTO jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body) VALUES :rows
