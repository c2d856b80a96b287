-- Of the next rows of a table of jobs: the id, the body's length, and whether it is a job still.
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
ORDER BY jobs.id
