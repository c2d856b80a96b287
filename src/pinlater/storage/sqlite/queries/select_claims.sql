SELECT id, queue_id, priority, flags, token FROM claims WHERE id IN (SELECT value FROM json_each(?))
