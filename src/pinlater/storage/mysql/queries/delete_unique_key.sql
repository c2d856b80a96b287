DELETE FROM unique_keys WHERE queue_id = :queue_id AND unique_key = :key
