-- Reads all claims, of which there are never many.
SELECT id FROM claims WHERE queue_id = :queue_id AND priority = :priority ORDER BY claimed_at_ms, id LIMIT :limit
