-- What has options or a past, without its body.
SELECT jobs.id, coalesce(progress.attempts_allowed, jobs.attempts_allowed), coalesce(progress.attempts_remaining, jobs.attempts_allowed),
  coalesce(progress.attempts_ended, 0), jobs.created_at_ms, jobs.options
FROM :jobs LEFT JOIN progress ON progress.id = jobs.id
WHERE jobs.id IN (:ids)
