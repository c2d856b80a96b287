-- Locked: what is found to be forgotten is deleted next, and another server may be about to store a new answer under the same key.
SELECT queue_id, request_key, seen_at_ms, fingerprint, answer, existing FROM request_keys FORCE INDEX (PRIMARY)
WHERE :keys FOR UPDATE
