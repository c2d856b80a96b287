INSERT INTO deleted_queues (name, deleted_at_ms) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET deleted_at_ms = max(deleted_at_ms, excluded.deleted_at_ms)
