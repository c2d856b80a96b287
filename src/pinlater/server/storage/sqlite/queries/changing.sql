-- Jobs loaded, decided on and written back (`relational/changes.py`).

-- name: load_jobs(ids)
-- The fields of `JobRecord`, up to the length of the body. A job in none of `ready`, `claims` and `done` is the rest of one; it is left out.
-- `ready` is looked at for jobs in neither of the others. Bodies are not read for their length.
SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.created_at_ms,
  coalesce(progress.run_after_ms, jobs.run_after_ms) AS run_after_ms,
  coalesce(progress.updated_at_ms, jobs.created_at_ms) AS updated_at_ms,
  coalesce(progress.attempts_allowed, jobs.attempts_allowed) AS attempts_allowed,
  coalesce(progress.attempts_remaining, jobs.attempts_allowed) AS attempts_remaining, jobs.options,
  CASE WHEN claims.id IS NOT NULL THEN 1 WHEN done.id IS NOT NULL THEN done.state WHEN ready.id IS NOT NULL THEN 0 END AS state,
  done.finished_at_ms, coalesce(progress.attempts_ended, 0) AS attempts_ended, progress.custom_status,
  coalesce(progress.error_type, '') AS error_type, coalesce(progress.error_text, '') AS error_text,
  coalesce(progress.attempts, '[]') AS history,
  claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, coalesce(claims.flags, 0) AS flags, claims.token,
  claims.source, coalesce(claims.holder, done.holder) AS holder, progress.id IS NOT NULL AS has_progress,
  0 AS counted_future,
  CASE WHEN progress.body IS NULL THEN length(jobs.body) ELSE length(progress.body) END AS body_bytes
FROM json_each(:ids) AS wanted
CROSS JOIN jobs ON jobs.id = wanted.value
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
LEFT JOIN ready ON ready.queue_id = CASE WHEN claims.id IS NULL AND done.id IS NULL THEN jobs.queue_id END
  AND ready.priority = jobs.priority AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
WHERE claims.id IS NOT NULL OR done.id IS NOT NULL OR ready.id IS NOT NULL;

-- name: load_states(ids)
-- The columns of `StateRow`.
SELECT jobs.id, jobs.queue_id, jobs.priority, coalesce(progress.run_after_ms, jobs.run_after_ms) AS run_after_ms, jobs.options,
  ready.id IS NOT NULL AS waits, 0 AS counted_future, claims.id AS claim_id, done.state AS done_state
FROM json_each(:ids) AS wanted
CROSS JOIN jobs ON jobs.id = wanted.value
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
LEFT JOIN ready ON ready.queue_id = CASE WHEN claims.id IS NULL AND done.id IS NULL THEN jobs.queue_id END
  AND ready.priority = jobs.priority AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id;

-- name: load_claims(ids)
-- The columns of `ClaimRow`.
SELECT claims.id, queue_id, priority, deadline_ms, timeout_ms, flags, token
FROM json_each(:ids) AS wanted
CROSS JOIN claims ON claims.id = wanted.value;

-- name: load_done(ids)
-- The columns of `DoneRow`.
SELECT done.id, queue_id, priority, state
FROM json_each(:ids) AS wanted
CROSS JOIN done ON done.id = wanted.value;

-- name: find_unfinished(ids)
SELECT jobs.id
FROM json_each(:ids) AS wanted
CROSS JOIN jobs ON jobs.id = wanted.value
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
WHERE ready.id IS NOT NULL OR claims.id IS NOT NULL;

-- name: load_bodies(ids)
SELECT jobs.id, coalesce(progress.body, jobs.body)
FROM json_each(:ids) AS wanted
CROSS JOIN jobs ON jobs.id = wanted.value
LEFT JOIN progress ON progress.id = jobs.id;

-- name: delete_ready(queue_id, priority, run_after_ms, id)
DELETE FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms = :run_after_ms AND id = :id;

-- name: delete_rows(ids)
-- {table}: a table whose key is an id.
DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(:ids));

-- name: renew_claims(id, deadline_ms, flags)
UPDATE claims SET deadline_ms = :deadline_ms, flags = :flags WHERE id = :id;

-- name: insert_ready(queue_id, priority, run_after_ms, id, changed)
-- changed: 1 for a job that has changed since its enqueue.
INSERT INTO ready (queue_id, priority, run_after_ms, id, changed)
VALUES (:queue_id, :priority, :run_after_ms, :id, :changed);

-- name: insert_done(id, queue_id, state, priority, finished_at_ms, holder)
INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder)
VALUES (:id, :queue_id, :state, :priority, :finished_at_ms, :holder);

-- name: free_unique_key(queue_id, key, id)
-- A key ends with its job, except one of scope TIME (2).
DELETE FROM unique_keys WHERE queue_id = :queue_id AND key = :key AND id = :id AND scope <> 2;

-- name: move_unique_key(queue_id, key, id, priority)
UPDATE unique_keys SET priority = :priority WHERE queue_id = :queue_id AND key = :key AND id = :id;

-- name: move_rows(priority, ids)
-- {table}: a table whose key is an id.
UPDATE {table} SET priority = :priority WHERE id IN (SELECT value FROM json_each(:ids));
