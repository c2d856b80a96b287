-- Lookups, pages of a scan, and counts. They run on readers' connections.

-- name: lookup_jobs(body, jobs, ids)
-- The fields of `JobRecord` up to the body, with the queue behind the id. `state` is NULL for what remains of a deleted job. :jobs is `jobs`
-- or `kept_jobs`; :body is the newest body, or NULL.
SELECT jobs.id, queues.name, jobs.queue_id, jobs.priority, jobs.created_at_ms,
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
  0 AS body_bytes, :body AS body
FROM :jobs
JOIN queues ON queues.queue_id = jobs.queue_id
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
WHERE jobs.id IN (:ids);

-- name: page_of_due(queue, priority, after_ms, after_id, limit)
-- Newest first, beginning after :after_ms and :after_id.
SELECT run_after_ms AS sort_ms, id FROM ready JOIN queues USING (queue_id)
WHERE queues.name = :queue AND priority = :priority
  AND (run_after_ms < :after_ms OR (run_after_ms = :after_ms AND id < :after_id))
ORDER BY run_after_ms DESC, id DESC LIMIT :limit;

-- name: page_of_future(queue, priority, due_by_ms, after_ms, after_id, limit)
-- As `page_of_due`, down to what is due.
SELECT run_after_ms AS sort_ms, id FROM ready JOIN queues USING (queue_id)
WHERE queues.name = :queue AND priority = :priority AND run_after_ms > :due_by_ms
  AND (run_after_ms < :after_ms OR (run_after_ms = :after_ms AND id < :after_id))
ORDER BY run_after_ms DESC, id DESC LIMIT :limit;

-- name: page_of_claims(queue, priority, after_ms, after_id, limit)
-- Reads all claims, of which there are never many.
SELECT claimed_at_ms AS sort_ms, id FROM claims JOIN queues USING (queue_id)
WHERE queues.name = :queue AND priority = :priority
  AND (claimed_at_ms < :after_ms OR (claimed_at_ms = :after_ms AND id < :after_id))
ORDER BY claimed_at_ms DESC, id DESC LIMIT :limit;

-- name: page_of_done(queue, state, priority, after_ms, after_id, limit)
-- Newest first, beginning after :after_ms and :after_id.
SELECT finished_at_ms AS sort_ms, id FROM done FORCE INDEX (done_by_finish) JOIN queues USING (queue_id)
WHERE queues.name = :queue AND state = :state AND priority = :priority
  AND (finished_at_ms < :after_ms OR (finished_at_ms = :after_ms AND id < :after_id))
ORDER BY finished_at_ms DESC, id DESC LIMIT :limit;

-- name: merge_pages(pages, limit)
-- The first rows of several of these. :pages is a page of each priority.
:pages
ORDER BY sort_ms DESC, id DESC LIMIT :limit;

-- name: list_higher_priorities(queue_id, priority)
-- Those that are handed out before :priority.
SELECT DISTINCT priority FROM counters WHERE queue_id = :queue_id AND priority < :priority ORDER BY priority;

-- name: count_waiting(queue_id, priority, before_ms, before_id, limit)
-- How many waiting jobs of one priority come before :before_ms and :before_id; reads :limit entries of the key at most.
SELECT COUNT(*) FROM (
  SELECT 1 FROM ready
  WHERE queue_id = :queue_id AND priority = :priority
    AND (run_after_ms < :before_ms OR (run_after_ms = :before_ms AND id < :before_id)) LIMIT :limit
) AS found;

-- name: count_jobs(names)
-- Counters summed over all writers, with the run-after of the job that waits longest where one is due, and the latest run-after where
-- some jobs are not due. In the whole order of the key: MySQL 8.0 reads and sorts all waiting jobs of the priority for another one.
-- :names: of the queues; `queues.name` for those of all.
SELECT queues.name, counters.priority, CAST(SUM(pending) AS SIGNED), CAST(GREATEST(SUM(future), 0) AS SIGNED),
  CAST(SUM(in_progress) AS SIGNED), CAST(SUM(succeeded) AS SIGNED), CAST(SUM(failed) AS SIGNED),
  CAST(SUM(enqueued_total) AS SIGNED), CAST(SUM(claimed_total) AS SIGNED), CAST(SUM(succeeded_total) AS SIGNED),
  CAST(SUM(failed_total) AS SIGNED), CAST(SUM(retried_total) AS SIGNED),
  CASE WHEN SUM(pending) > SUM(future) THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority
    ORDER BY ready.queue_id, ready.priority, ready.run_after_ms LIMIT 1
  ) END,
  counters.queue_id,
  CASE WHEN SUM(future) > 0 THEN (
    SELECT ready.run_after_ms FROM ready
    WHERE ready.queue_id = counters.queue_id AND ready.priority = counters.priority
    ORDER BY ready.queue_id DESC, ready.priority DESC, ready.run_after_ms DESC LIMIT 1
  ) END
FROM counters JOIN queues ON queues.queue_id = counters.queue_id
WHERE queues.name IN (:names)
GROUP BY queues.name, counters.queue_id, counters.priority
ORDER BY queues.name, counters.priority;

-- name: count_behind(queue_id, priority, from_ms, limit)
-- How many jobs wait behind others of their ordering keys; reads :limit entries of the key at most.
SELECT :queue_id, :priority, COUNT(*) FROM (
  SELECT 1 FROM ready WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms >= :from_ms LIMIT :limit
) AS found;

-- name: find_holders(key, names)
-- The holders of a unique key in some queues. One without an end in time is held by a job that waits or is claimed.
SELECT queues.name, unique_keys.id, unique_keys.priority, unique_keys.until_ms
FROM queues STRAIGHT_JOIN unique_keys FORCE INDEX (PRIMARY)
WHERE queues.name IN (:names) AND unique_keys.queue_id = queues.queue_id AND unique_keys.unique_key = :key
  AND (unique_keys.until_ms IS NOT NULL OR EXISTS (
  SELECT 1 FROM jobs
  LEFT JOIN progress ON progress.id = jobs.id
  LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
    AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
  LEFT JOIN claims ON claims.id = jobs.id
  WHERE jobs.id = unique_keys.id AND (ready.id IS NOT NULL OR claims.id IS NOT NULL)
) OR EXISTS (
  SELECT 1 FROM kept_jobs
  LEFT JOIN progress ON progress.id = kept_jobs.id
  LEFT JOIN ready ON ready.queue_id = kept_jobs.queue_id AND ready.priority = kept_jobs.priority
    AND ready.run_after_ms = coalesce(progress.run_after_ms, kept_jobs.run_after_ms) AND ready.id = kept_jobs.id
  LEFT JOIN claims ON claims.id = kept_jobs.id
  WHERE kept_jobs.id = unique_keys.id AND (ready.id IS NOT NULL OR claims.id IS NOT NULL)
));

-- name: count_timed_keys(now_ms, limit)
-- How many unique keys time alone will free, at most :limit, and when the last of them ends.
SELECT
  (SELECT COUNT(*) FROM (SELECT 1 FROM unique_keys WHERE until_ms > :now_ms LIMIT :limit) AS held),
  (SELECT until_ms FROM unique_keys WHERE until_ms > :now_ms ORDER BY until_ms DESC LIMIT 1);

-- name: list_unique_queues()
-- Queues with unique keys, each with the lowest id of a job that holds one.
SELECT queues.name, min(unique_keys.id) FROM unique_keys JOIN queues ON queues.queue_id = unique_keys.queue_id
GROUP BY queues.name ORDER BY queues.name;
