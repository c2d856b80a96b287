-- Lookups, pages of a scan, and counts. They run on readers' connections.

-- name: lookup_jobs(ids, bodies)
-- The queue, and the fields of `JobRecord` up to the body, in the order of the ids. bodies: 0 for NULL in place of each body. The rest of a
-- job, as in `load_jobs`, is left out.
SELECT queues.name AS queue, jobs.id, jobs.queue_id, jobs.priority, jobs.created_at_ms,
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
  0 AS body_bytes, CASE WHEN :bodies THEN coalesce(progress.body, jobs.body) END AS body
FROM json_each(:ids) AS wanted
CROSS JOIN jobs ON jobs.id = wanted.value
JOIN queues ON queues.queue_id = jobs.queue_id
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
LEFT JOIN ready ON ready.queue_id = CASE WHEN claims.id IS NULL AND done.id IS NULL THEN jobs.queue_id END
  AND ready.priority = jobs.priority AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
WHERE claims.id IS NOT NULL OR done.id IS NOT NULL OR ready.id IS NOT NULL;

-- name: page_of_due(queue, priority, after_ms, after_id, limit)
-- Newest first, beginning after (:after_ms, :after_id).
SELECT run_after_ms AS sort_ms, id FROM ready
WHERE queue_id = (SELECT queue_id FROM queues WHERE name = :queue) AND priority = :priority AND (run_after_ms, id) < (:after_ms, :after_id)
ORDER BY run_after_ms DESC, id DESC LIMIT :limit;

-- name: page_of_future(queue, priority, due_by_ms, after_ms, after_id, limit)
-- As `page_of_due`, down to what is due.
SELECT run_after_ms AS sort_ms, id FROM ready
WHERE queue_id = (SELECT queue_id FROM queues WHERE name = :queue) AND priority = :priority AND run_after_ms > :due_by_ms AND (run_after_ms, id) < (:after_ms, :after_id)
ORDER BY run_after_ms DESC, id DESC LIMIT :limit;

-- name: page_of_claims(queue, priority, after_ms, after_id, limit)
-- Reads all claims, of which there are never many.
SELECT claimed_at_ms AS sort_ms, id FROM claims
WHERE queue_id = (SELECT queue_id FROM queues WHERE name = :queue) AND priority = :priority AND (claimed_at_ms, id) < (:after_ms, :after_id)
ORDER BY claimed_at_ms DESC, id DESC LIMIT :limit;

-- name: page_of_done(queue, state, priority, after_ms, after_id, limit)
-- Newest first, beginning after (:after_ms, :after_id).
SELECT finished_at_ms AS sort_ms, id FROM done
WHERE queue_id = (SELECT queue_id FROM queues WHERE name = :queue) AND state = :state AND priority = :priority AND (finished_at_ms, id) < (:after_ms, :after_id)
ORDER BY finished_at_ms DESC, id DESC LIMIT :limit;

-- name: part_of_union()
-- {statement} with its ORDER BY and LIMIT, which SQLite takes in no part of a UNION.
SELECT * FROM ({statement});

-- name: merge_pages(limit)
-- The first rows of several of these. {pages}: a page of each priority.
{pages}
ORDER BY sort_ms DESC, id DESC LIMIT :limit;

-- name: list_higher_priorities(queue_id, priority)
-- Those with waiting jobs that are handed out before :priority.
SELECT priority FROM counters WHERE queue_id = :queue_id AND priority < :priority AND pending > 0 ORDER BY priority;

-- name: count_waiting(queue_id, priority, before_ms, before_id, limit)
-- How many waiting jobs of one priority come before (:before_ms, :before_id); reads :limit entries of the key at most.
SELECT COUNT(*) FROM (
  SELECT 1 FROM ready
  WHERE queue_id = :queue_id AND priority = :priority AND (run_after_ms, id) < (:before_ms, :before_id) LIMIT :limit
);

-- name: count_all_jobs(behind_ms, most_behind)
-- The counters of every queue, with the run-after of the job that waits longest where one is due, and how many jobs
-- wait behind others of their ordering keys, :most_behind at most.
SELECT queues.name, counters.priority, counters.pending, counters.future, counters.in_progress, counters.succeeded,
  counters.failed, counters.enqueued_total, counters.claimed_total, counters.succeeded_total, counters.failed_total,
  counters.retried_total,
  CASE WHEN counters.pending > counters.future THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority ORDER BY ready.run_after_ms LIMIT 1
  ) END,
  CASE WHEN counters.future = 0 THEN 0 ELSE (
    SELECT COUNT(*) FROM (
      SELECT 1 FROM ready WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority
      AND ready.run_after_ms >= :behind_ms LIMIT :most_behind
    )
  ) END
FROM queues JOIN counters ON counters.queue_id = queues.queue_id
ORDER BY queues.name, counters.priority;

-- name: count_jobs(names, behind_ms, most_behind)
-- The same for the queues in a JSON list. A statement of its own: with a condition that may be off, SQLite would read all counters.
SELECT queues.name, counters.priority, counters.pending, counters.future, counters.in_progress, counters.succeeded,
  counters.failed, counters.enqueued_total, counters.claimed_total, counters.succeeded_total, counters.failed_total,
  counters.retried_total,
  CASE WHEN counters.pending > counters.future THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority ORDER BY ready.run_after_ms LIMIT 1
  ) END,
  CASE WHEN counters.future = 0 THEN 0 ELSE (
    SELECT COUNT(*) FROM (
      SELECT 1 FROM ready WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority
      AND ready.run_after_ms >= :behind_ms LIMIT :most_behind
    )
  ) END
FROM queues JOIN counters ON counters.queue_id = queues.queue_id
WHERE queues.name IN (SELECT value FROM json_each(:names))
ORDER BY queues.name, counters.priority;

-- name: find_holders(key, names)
-- The holders of a unique key in the queues of a JSON list. One without an end in time is held by a job that waits or is claimed.
SELECT queues.name, unique_keys.id, unique_keys.priority, unique_keys.until_ms
FROM json_each(:names) AS wanted
CROSS JOIN queues ON queues.name = wanted.value
CROSS JOIN unique_keys ON unique_keys.queue_id = queues.queue_id AND unique_keys.key = :key
WHERE unique_keys.until_ms IS NOT NULL OR EXISTS (
  SELECT 1 FROM jobs
  LEFT JOIN progress ON progress.id = jobs.id
  LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
    AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
  LEFT JOIN claims ON claims.id = jobs.id
  WHERE jobs.id = unique_keys.id AND (ready.id IS NOT NULL OR claims.id IS NOT NULL)
);

-- name: count_timed_keys(now_ms, limit)
-- How many unique keys time alone will free, at most `limit`, and when the last of them ends.
SELECT
  (SELECT COUNT(*) FROM (SELECT 1 FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms > :now_ms LIMIT :limit)),
  (SELECT until_ms FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms > :now_ms ORDER BY until_ms DESC LIMIT 1);

-- name: list_unique_queues()
-- Queues with unique keys, each with the lowest id of a job that holds one.
SELECT queues.name, MIN(unique_keys.id) FROM unique_keys JOIN queues USING (queue_id)
GROUP BY unique_keys.queue_id;
