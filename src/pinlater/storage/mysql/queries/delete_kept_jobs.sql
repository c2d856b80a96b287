DELETE FROM kept_jobs WHERE id IN (:ids)
