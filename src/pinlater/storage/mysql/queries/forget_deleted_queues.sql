DELETE FROM deleted_queues WHERE deleted_at_ms < :before_ms LIMIT :limit
