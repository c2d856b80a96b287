SELECT queue_id, request_key, seen_at_ms, fingerprint, answer, existing FROM request_keys FORCE INDEX (PRIMARY)
WHERE :keys
