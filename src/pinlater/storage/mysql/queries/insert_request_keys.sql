INSERT INTO request_keys (queue_id, request_key, seen_at_ms, fingerprint, answer, existing) VALUES :rows
