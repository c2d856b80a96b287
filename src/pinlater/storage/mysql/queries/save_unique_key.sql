INSERT INTO unique_keys (queue_id, unique_key, scope, id, priority, until_ms) VALUES :rows
