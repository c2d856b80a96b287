UPDATE deleted_queues SET deleted_at_ms = GREATEST(deleted_at_ms, :deleted_ms) WHERE name = :name
