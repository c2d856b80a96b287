SELECT queue_id, unique_key, id, priority, until_ms FROM unique_keys FORCE INDEX (PRIMARY) WHERE :keys
