-- Goes through all jobs in progress, of which there are never many.
SELECT id FROM claims WHERE queue_id = ? AND priority = ? ORDER BY claimed_at_ms, id LIMIT ?
