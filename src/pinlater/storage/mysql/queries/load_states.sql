-- The columns of `StateRow`. Joined in the order in which a job moves through the tables.
SELECT jobs.id, jobs.queue_id, jobs.priority, coalesce(progress.run_after_ms, jobs.run_after_ms) AS run_after_ms, jobs.options,
  ready.id IS NOT NULL AS waits, coalesce(ready.flags & 2, 0) AS counted_future, claims.id AS claim_id, done.state AS done_state
FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids)
FOR UPDATE
