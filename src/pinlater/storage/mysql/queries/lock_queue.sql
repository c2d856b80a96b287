SELECT queue_id, paused, config FROM queues WHERE name = :name FOR UPDATE
