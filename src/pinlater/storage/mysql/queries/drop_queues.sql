DELETE FROM queues WHERE queue_id IN (:ids)
