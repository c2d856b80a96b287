DELETE FROM jobs WHERE id IN (:ids)
