SELECT queue_id FROM queues WHERE name = :name
