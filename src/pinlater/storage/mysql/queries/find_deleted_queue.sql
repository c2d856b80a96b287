SELECT deleted_at_ms FROM deleted_queues WHERE name = :name
