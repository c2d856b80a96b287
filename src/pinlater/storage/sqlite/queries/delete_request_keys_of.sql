DELETE FROM request_keys WHERE queue_id = ?1 AND key IN (SELECT key FROM request_keys WHERE queue_id = ?1 LIMIT ?2)
