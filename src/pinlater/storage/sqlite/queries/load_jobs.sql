SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.run_after_ms, jobs.attempts_allowed, jobs.created_at_ms, jobs.options,
  progress.id, progress.attempts_allowed, progress.attempts_remaining, progress.attempts_ended, progress.run_after_ms,
  progress.updated_at_ms, progress.custom_status, progress.error_type, progress.error_text, progress.attempts,
  claims.id, claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, claims.flags, claims.token, claims.source, claims.holder,
  done.state, done.finished_at_ms
FROM jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (SELECT value FROM json_each(?))
