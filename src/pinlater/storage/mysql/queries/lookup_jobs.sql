SELECT jobs.id, queues.name, jobs.priority, jobs.run_after_ms, jobs.attempts_allowed, jobs.created_at_ms, jobs.options,
  progress.attempts_allowed, progress.attempts_remaining, progress.run_after_ms, progress.updated_at_ms,
  progress.custom_status, progress.error_type, progress.error_text, progress.attempts,
  claims.claimed_at_ms, claims.deadline_ms, claims.holder,
  done.state, done.finished_at_ms, done.holder,
  :body, ready.flags
FROM :jobs
JOIN queues ON queues.queue_id = jobs.queue_id
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids)
