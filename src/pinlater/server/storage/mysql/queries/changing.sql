-- Jobs loaded, decided on and written back (`relational/changes.py`).

-- name: load_jobs(jobs, ids)
-- The fields of `JobRecord`, up to the length of the body. Joined in the order in which a job moves through the tables, so that a job that
-- moves during the look is found where it arrives. `state` is NULL for a job in none of them.
SELECT jobs.id, jobs.queue_id, jobs.priority, jobs.created_at_ms,
  coalesce(progress.run_after_ms, jobs.run_after_ms) AS run_after_ms,
  coalesce(progress.updated_at_ms, jobs.created_at_ms) AS updated_at_ms,
  coalesce(progress.attempts_allowed, jobs.attempts_allowed) AS attempts_allowed,
  coalesce(progress.attempts_remaining, jobs.attempts_allowed) AS attempts_remaining, jobs.options,
  CAST(CASE WHEN claims.id IS NOT NULL THEN 1 WHEN done.id IS NOT NULL THEN done.state WHEN ready.id IS NOT NULL THEN 0 END AS SIGNED)
    AS state,
  done.finished_at_ms, coalesce(progress.attempts_ended, 0) AS attempts_ended, progress.custom_status,
  coalesce(progress.error_type, '') AS error_type, coalesce(progress.error_text, '') AS error_text,
  coalesce(progress.attempts, '[]') AS history,
  claims.claimed_at_ms, claims.deadline_ms, claims.timeout_ms, CAST(coalesce(claims.flags, 0) AS SIGNED) AS flags, claims.token,
  claims.source, coalesce(claims.holder, done.holder) AS holder, progress.id IS NOT NULL AS has_progress,
  coalesce(ready.flags & 2, 0) AS counted_future,
  octet_length(coalesce(progress.body, jobs.body)) AS body_bytes
FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids)
FOR UPDATE;

-- name: load_states(jobs, ids)
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
FOR UPDATE;

-- name: find_unfinished(jobs, ids)
-- Of one moment, without locks.
SELECT jobs.id FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
WHERE jobs.id IN (:ids) AND (ready.id IS NOT NULL OR claims.id IS NOT NULL);

-- name: load_bodies(jobs, ids)
SELECT jobs.id, coalesce(progress.body, jobs.body) FROM :jobs
LEFT JOIN progress ON progress.id = jobs.id
WHERE jobs.id IN (:ids);

-- name: load_claims(ids)
-- The columns of `ClaimRow`.
SELECT id, queue_id, priority, deadline_ms, timeout_ms, flags, token FROM claims FORCE INDEX (PRIMARY) WHERE id IN (:ids) FOR UPDATE;

-- name: load_done(ids)
-- The columns of `DoneRow`.
SELECT id, queue_id, priority, state FROM done FORCE INDEX (PRIMARY) WHERE id IN (:ids) FOR UPDATE;

-- name: delete_ready(keys)
-- By whole primary keys, in their order.
DELETE ready FROM JSON_TABLE(:keys, '$[*]' COLUMNS (
  queue_id INT UNSIGNED PATH '$[0]', priority SMALLINT UNSIGNED PATH '$[1]', run_after_ms BIGINT PATH '$[2]', id BIGINT PATH '$[3]'
)) AS gone
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = gone.queue_id AND ready.priority = gone.priority
  AND ready.run_after_ms = gone.run_after_ms AND ready.id = gone.id;

-- name: delete_ready_row(queue_id, priority, run_after_ms, id)
-- As `delete_ready`, for one job.
DELETE FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms = :run_after_ms AND id = :id;

-- name: delete_row(table, id)
-- As `delete_rows`, for one job.
DELETE FROM :table WHERE id = :id;

-- name: delete_rows(table, ids)
-- With `IN (…)` of a good part of the table, the database would read all of it and wait for every lock in it.
DELETE :table FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN :table FORCE INDEX (PRIMARY) ON :table.id = gone.id;

-- name: renew_claims(keys)
-- Each claim gets its own deadline and flags.
UPDATE JSON_TABLE(:keys, '$[*]' COLUMNS (id BIGINT PATH '$[0]', deadline_ms BIGINT PATH '$[1]', flags INT PATH '$[2]')) AS renewed
STRAIGHT_JOIN claims FORCE INDEX (PRIMARY) ON claims.id = renewed.id
SET claims.deadline_ms = renewed.deadline_ms, claims.flags = renewed.flags;

-- name: insert_ready(rows)
-- flags: 1 for a job that has changed since its enqueue, 2 for one that counts as future, 4 for one with options.
INSERT INTO ready (queue_id, priority, run_after_ms, id, flags, size) VALUES :rows;

-- name: insert_future(rows)
-- A job that waits again may still have its row.
INSERT IGNORE INTO future (run_after_ms, id, queue_id, priority) VALUES :rows;

-- name: delete_future(keys)
-- By whole primary keys, in their order.
DELETE future FROM JSON_TABLE(:keys, '$[*]' COLUMNS (run_after_ms BIGINT PATH '$[0]', id BIGINT PATH '$[1]')) AS gone
STRAIGHT_JOIN future FORCE INDEX (PRIMARY) ON future.run_after_ms = gone.run_after_ms AND future.id = gone.id;

-- name: insert_done(rows)
-- A row that is there is one that no transaction has left: the newest end counts.
INSERT INTO done (id, queue_id, state, priority, finished_at_ms, holder) VALUES :rows
ON DUPLICATE KEY UPDATE state = VALUES(state), priority = VALUES(priority), finished_at_ms = VALUES(finished_at_ms), holder = VALUES(holder);

-- name: find_unique_key(queue_id, key)
-- Locked: a key that has ended is deleted next, while another server may give it to another job.
SELECT id, priority, until_ms FROM unique_keys WHERE queue_id = :queue_id AND unique_key = _binary:key FOR UPDATE;

-- name: delete_unique_key(queue_id, key)
DELETE FROM unique_keys WHERE queue_id = :queue_id AND unique_key = _binary:key;

-- name: free_unique_key(queue_id, key, id)
-- A key ends with its job, except one of scope TIME (2).
DELETE FROM unique_keys WHERE queue_id = :queue_id AND unique_key = _binary:key AND id = :id AND scope <> 2;

-- name: move_unique_key(queue_id, key, id, priority)
UPDATE unique_keys SET priority = :priority WHERE queue_id = :queue_id AND unique_key = _binary:key AND id = :id;

-- name: move_rows(table, priority, ids)
-- As `delete_rows`.
UPDATE JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS moved
STRAIGHT_JOIN :table FORCE INDEX (PRIMARY) ON :table.id = moved.id
SET :table.priority = :priority;
