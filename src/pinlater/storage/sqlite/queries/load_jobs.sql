-- The columns of `JobRow`. A job without a claim and without a row in `done` waits.
SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.run_after_ms, jobs.attempts_allowed, jobs.created_at_ms, jobs.options,
  progress.id AS p_id, progress.attempts_allowed AS p_attempts_allowed, progress.attempts_remaining AS p_attempts_remaining,
  progress.attempts_ended AS p_attempts_ended, progress.run_after_ms AS p_run_after_ms,
  progress.updated_at_ms AS p_updated_at_ms, progress.custom_status AS p_custom_status,
  progress.error_type AS p_error_type, progress.error_text AS p_error_text, progress.attempts AS p_history,
  claims.id AS claim_id, claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, claims.flags AS claim_flags,
  claims.token, claims.source, claims.holder,
  done.state AS done_state, done.finished_at_ms, 0 AS counted_future, 0 AS body_bytes
FROM jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (SELECT value FROM json_each(?))
