DELETE FROM deleted_queues WHERE name IN (SELECT name FROM deleted_queues WHERE deleted_at_ms < ? LIMIT ?)
