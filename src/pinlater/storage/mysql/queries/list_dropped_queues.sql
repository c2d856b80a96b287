SELECT queue_id FROM dropped_queues ORDER BY queue_id
