DELETE FROM request_keys WHERE (queue_id, request_key) IN (:keys)
