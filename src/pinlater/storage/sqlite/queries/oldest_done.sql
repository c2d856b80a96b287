SELECT finished_at_ms, id FROM done
WHERE queue_id = :queue_id AND state = :state AND priority = :priority
  AND (finished_at_ms, id) > (:after_ms, :after_id) AND finished_at_ms <= :until_ms
ORDER BY finished_at_ms, id LIMIT :limit
