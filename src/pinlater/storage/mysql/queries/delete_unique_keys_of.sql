DELETE FROM unique_keys WHERE queue_id = :queue_id LIMIT :limit
