INSERT OR REPLACE INTO request_keys (queue_id, key, seen_at_ms, fingerprint, answer, existing)
VALUES (?, ?, ?, ?, ?, ?)
