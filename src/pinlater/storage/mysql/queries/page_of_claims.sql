-- Goes through all jobs in progress, of which there are never many.
SELECT claimed_at_ms, id FROM claims
WHERE queue_id = :queue_id AND priority = :priority
  AND (claimed_at_ms < :after_ms OR (claimed_at_ms = :after_ms AND id < :after_id))
ORDER BY claimed_at_ms DESC, id DESC LIMIT :limit
