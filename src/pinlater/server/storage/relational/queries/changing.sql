-- Jobs loaded, decided on and written back (`relational/changes.py`).

-- name: save_progress(id, attempts_allowed, attempts_remaining, attempts_ended, run_after_ms, updated_at_ms,
--   custom_status, error_type, error_text, attempts)
-- `body` keeps its value: `save_body` sets it.
INSERT INTO progress (id, attempts_allowed, attempts_remaining, attempts_ended, run_after_ms, updated_at_ms, custom_status,
  error_type, error_text, attempts)
VALUES :rows
ON CONFLICT (id) DO UPDATE SET
  attempts_allowed = excluded.attempts_allowed, attempts_remaining = excluded.attempts_remaining,
  attempts_ended = excluded.attempts_ended, run_after_ms = excluded.run_after_ms, updated_at_ms = excluded.updated_at_ms,
  custom_status = excluded.custom_status, error_type = excluded.error_type, error_text = excluded.error_text,
  attempts = excluded.attempts;

-- name: save_body(body, id)
-- A checkpoint's new body; the one at enqueue stays in `jobs`.
UPDATE progress SET body = :body WHERE id = :id;

-- name: insert_expiries(expires_at_ms, id)
-- A job that waits again may still have its row.
INSERT OR IGNORE INTO expiries (expires_at_ms, id)
VALUES :rows;
