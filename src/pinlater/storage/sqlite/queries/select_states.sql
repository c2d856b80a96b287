-- Where each of the named jobs is, for deleting.
SELECT jobs.id, jobs.queue_id, jobs.priority, coalesce(progress.run_after_ms, jobs.run_after_ms), claims.id, done.state
FROM jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (SELECT value FROM json_each(?))
