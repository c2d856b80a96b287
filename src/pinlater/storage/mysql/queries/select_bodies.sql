SELECT id, attempts_allowed, created_at_ms, body FROM :jobs WHERE id IN (:ids)
