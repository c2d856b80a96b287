DELETE FROM dropped_queues WHERE queue_id = :queue_id
