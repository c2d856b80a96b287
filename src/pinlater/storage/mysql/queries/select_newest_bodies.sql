SELECT jobs.id, coalesce(progress.body, jobs.body) FROM :jobs LEFT JOIN progress ON progress.id = jobs.id
WHERE jobs.id IN (:ids)
