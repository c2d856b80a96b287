DELETE FROM request_keys WHERE queue_id = :queue_id LIMIT :limit
