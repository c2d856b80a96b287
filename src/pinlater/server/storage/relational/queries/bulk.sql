-- The oldest jobs of a state, for an operator's retries and deletions and for the garbage collection.

-- name: oldest_claims(queue_id, priority, limit)
-- Reads all claims, of which there are never many.
SELECT id FROM claims WHERE queue_id = :queue_id AND priority = :priority
ORDER BY claimed_at_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED;
