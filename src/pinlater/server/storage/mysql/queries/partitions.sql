-- Partitions of `jobs`, and the jobs that outlive theirs.

-- name: list_partitions()
-- With the lowest id that each can't hold.
SELECT partition_name, partition_description FROM information_schema.partitions
WHERE table_schema = database() AND table_name = 'jobs' ORDER BY partition_ordinal_position;

-- name: count_done_between(from_id, to_id, limit)
-- At most :limit of the finished jobs with these ids.
SELECT count(*) FROM (SELECT 1 FROM done WHERE id >= :from_id AND id < :to_id LIMIT :limit) AS found;

-- name: select_states_after(table, from_id, to_id, limit)
-- Of the next rows of a table of jobs: the id, the body's length, and whether the job is in a state.
SELECT jobs.id, jobs.size, ready.id IS NOT NULL OR claims.id IS NOT NULL OR done.id IS NOT NULL
FROM (
  SELECT id, queue_id, priority, run_after_ms, octet_length(body) AS size FROM :table
  WHERE id >= :from_id AND id < :to_id ORDER BY id LIMIT :limit
) AS jobs
LEFT JOIN progress ON progress.id = jobs.id
LEFT JOIN ready ON ready.queue_id = jobs.queue_id AND ready.priority = jobs.priority
  AND ready.run_after_ms = coalesce(progress.run_after_ms, jobs.run_after_ms) AND ready.id = jobs.id
LEFT JOIN claims ON claims.id = jobs.id
LEFT JOIN done ON done.id = jobs.id
ORDER BY jobs.id;

-- name: keep_jobs(ids)
-- Copies them, so that their partition can be dropped.
INSERT IGNORE INTO kept_jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body)
SELECT id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body
FROM jobs FORCE INDEX (PRIMARY) WHERE id IN (:ids);

-- name: keep_moved_jobs(ids)
-- As `keep_jobs`, of jobs that have another priority now: a copy that there is gets it.
INSERT INTO kept_jobs (id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body)
SELECT id, queue_id, priority, run_after_ms, attempts_allowed, created_at_ms, options, body
FROM jobs FORCE INDEX (PRIMARY) WHERE id IN (:ids)
ON DUPLICATE KEY UPDATE priority = VALUES(priority);
