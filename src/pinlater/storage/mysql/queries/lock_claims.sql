SELECT id, queue_id, priority, flags, token FROM claims WHERE id IN (:ids) FOR UPDATE
