INSERT INTO progress (id, attempts_allowed, attempts_remaining, attempts_ended, run_after_ms, updated_at_ms, custom_status,
  error_type, error_text, attempts)
VALUES :rows
ON DUPLICATE KEY UPDATE
  attempts_allowed = VALUES(attempts_allowed), attempts_remaining = VALUES(attempts_remaining),
  attempts_ended = VALUES(attempts_ended), run_after_ms = VALUES(run_after_ms), updated_at_ms = VALUES(updated_at_ms),
  custom_status = VALUES(custom_status), error_type = VALUES(error_type), error_text = VALUES(error_text),
  attempts = VALUES(attempts)
