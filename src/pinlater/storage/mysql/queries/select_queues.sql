SELECT queue_id, name FROM queues WHERE queue_id IN (:ids)
