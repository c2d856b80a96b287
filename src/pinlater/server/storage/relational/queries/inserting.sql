-- Storing new jobs, with the keys that come with them.

-- name: insert_jobs(id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body)
INSERT INTO jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body)
VALUES :rows;
