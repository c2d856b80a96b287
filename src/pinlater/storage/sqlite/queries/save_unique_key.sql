INSERT OR REPLACE INTO unique_keys (queue_id, key, scope, id, priority, until_ms)
VALUES (?, ?, ?, ?, ?, ?)
