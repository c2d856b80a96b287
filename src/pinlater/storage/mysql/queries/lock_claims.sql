SELECT id, queue_id, priority, flags, token FROM claims FORCE INDEX (PRIMARY) WHERE id IN (:ids) FOR UPDATE
