SELECT id, priority, until_ms FROM unique_keys WHERE queue_id = ? AND key = ?
