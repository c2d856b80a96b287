-- Tables in the order in which a job moves through them, so that one that moves on meanwhile is met where it arrives.
SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.run_after_ms, jobs.attempts_allowed, jobs.created_at_ms, jobs.options,
  progress.id, progress.attempts_allowed, progress.attempts_remaining, progress.attempts_ended, progress.run_after_ms,
  progress.updated_at_ms, progress.custom_status, progress.error_type, progress.error_text, progress.attempts,
  claims.id, claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, claims.flags, claims.token, claims.source, claims.holder,
  done.state, done.finished_at_ms,
  ready.flags, octet_length(coalesce(progress.body, jobs.body))
FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids)
FOR UPDATE
