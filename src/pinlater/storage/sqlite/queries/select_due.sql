SELECT ready.run_after_ms, ready.id, ready.changed, jobs.attempts_allowed, jobs.created_at_ms, jobs.options, jobs.body
FROM ready JOIN jobs ON jobs.id = ready.id
WHERE ready.queue_id = ? AND ready.priority = ? AND ready.run_after_ms <= ?
ORDER BY ready.run_after_ms, ready.id
LIMIT ?
