-- The columns of `StateRow`.
SELECT jobs.id, jobs.queue_id, jobs.priority, coalesce(progress.run_after_ms, jobs.run_after_ms) AS run_after_ms, jobs.options,
  claims.id IS NULL AND done.id IS NULL AS waits, 0 AS counted_future, claims.id AS claim_id, done.state AS done_state
FROM jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (SELECT value FROM json_each(?))
