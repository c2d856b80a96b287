SELECT queue_id, name FROM queues WHERE name IN (:names)
