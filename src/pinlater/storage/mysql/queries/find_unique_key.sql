-- Locked: a key that has ended is deleted next, and another server may be about to give it to another job.
SELECT id, priority, until_ms FROM unique_keys WHERE queue_id = :queue_id AND unique_key = :key FOR UPDATE
