INSERT INTO progress (id, attempts_allowed, attempts_remaining, attempts_ended, run_after_ms, updated_at_ms, custom_status,
  error_type, error_text, attempts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
  attempts_allowed = excluded.attempts_allowed, attempts_remaining = excluded.attempts_remaining,
  attempts_ended = excluded.attempts_ended, run_after_ms = excluded.run_after_ms, updated_at_ms = excluded.updated_at_ms,
  custom_status = excluded.custom_status, error_type = excluded.error_type, error_text = excluded.error_text,
  attempts = excluded.attempts
