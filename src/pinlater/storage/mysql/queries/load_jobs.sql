-- The columns of `JobRow`. Joined in the order in which a job moves through the tables, so that a job that moves during the look is
-- found where it arrives. `counted_future` is NULL where the job does not wait.
SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.run_after_ms, jobs.attempts_allowed, jobs.created_at_ms, jobs.options,
  progress.id AS p_id, progress.attempts_allowed AS p_attempts_allowed, progress.attempts_remaining AS p_attempts_remaining,
  progress.attempts_ended AS p_attempts_ended, progress.run_after_ms AS p_run_after_ms,
  progress.updated_at_ms AS p_updated_at_ms, progress.custom_status AS p_custom_status,
  progress.error_type AS p_error_type, progress.error_text AS p_error_text, progress.attempts AS p_history,
  claims.id AS claim_id, claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, claims.flags AS claim_flags,
  claims.token, claims.source, claims.holder,
  done.state AS done_state, done.finished_at_ms,
  ready.flags & 2 AS counted_future, octet_length(coalesce(progress.body, jobs.body)) AS body_bytes
FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids)
FOR UPDATE
