-- Goes through all jobs in progress, of which there are never many; in a reader's thread.
SELECT claimed_at_ms, id FROM claims
WHERE queue_id = ? AND priority = ? AND (claimed_at_ms, id) < (?, ?)
ORDER BY claimed_at_ms DESC, id DESC LIMIT ?
