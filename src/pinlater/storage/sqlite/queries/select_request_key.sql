SELECT seen_at_ms, fingerprint, answer, existing FROM request_keys WHERE queue_id = ? AND key = ?
