DELETE FROM unique_keys WHERE (queue_id, unique_key) IN (:keys)
