SELECT finished_at_ms, id FROM done FORCE INDEX (done_by_finish)
WHERE queue_id = :queue_id AND state = :state AND priority = :priority
  AND (finished_at_ms > :after_ms OR (finished_at_ms = :after_ms AND id > :after_id)) AND finished_at_ms <= :until_ms
ORDER BY finished_at_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED
