-- Handing out due jobs: from `ready` to `claims`.

-- name: lock_due(queue_id, ranges, limit)
-- The ranges, one for each priority, are disjoint and in the order of the key, so no sort is needed. Rows that another
-- transaction has locked are skipped.
SELECT priority, run_after_ms, id, flags, size FROM ready
WHERE queue_id = :queue_id AND (:ranges)
ORDER BY priority, run_after_ms, id LIMIT :limit
FOR UPDATE SKIP LOCKED;

-- name: select_due(queue_id, ranges, limit)
-- The same without locks, for a peek.
SELECT priority, run_after_ms, id, flags, size FROM ready
WHERE queue_id = :queue_id AND (:ranges)
ORDER BY priority, run_after_ms, id LIMIT :limit;

-- name: select_special(jobs, ids)
-- Jobs with options or progress, without their bodies. The last column: whether the progress is another run-after and nothing else, as of a
-- job that has waited behind others under its ordering key.
SELECT jobs.id, coalesce(progress.attempts_allowed, jobs.attempts_allowed), coalesce(progress.attempts_remaining, jobs.attempts_allowed),
  coalesce(progress.attempts_ended, 0), jobs.created_at_ms, jobs.options,
  progress.updated_at_ms <=> jobs.created_at_ms AND progress.attempts_ended = 0 AND progress.attempts = '[]' AND progress.body IS NULL
FROM :jobs LEFT JOIN progress ON progress.id = jobs.id
WHERE jobs.id IN (:ids);

-- name: select_bodies(jobs, ids)
-- Plain jobs. :jobs is `jobs` or `kept_jobs`.
SELECT id, attempts_allowed, created_at_ms, body FROM :jobs WHERE id IN (:ids);

-- name: select_newest_bodies(jobs, ids)
-- Jobs with options or progress: a checkpoint's body goes before the one at enqueue.
SELECT jobs.id, coalesce(progress.body, jobs.body) FROM :jobs LEFT JOIN progress ON progress.id = jobs.id
WHERE jobs.id IN (:ids);

-- name: delete_remembered(which)
-- As `delete_ready`, but for jobs that were never claimed: one that came back has the same key and other content.
DELETE FROM ready WHERE (:which) AND flags & 1 = 0;

-- name: select_first_ready(queue_id, priority, from_ms)
-- When the next job from :from_ms on is due.
SELECT MIN(run_after_ms) FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms >= :from_ms;

-- name: claims_of_tokens(tokens)
-- Reads all claims, of which there are never many; asked only after a claim with an unknown outcome.
SELECT id FROM claims WHERE token IN (:tokens);
