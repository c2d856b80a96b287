SELECT id FROM done FORCE INDEX (done_by_finish) WHERE queue_id = :queue_id LIMIT :limit FOR UPDATE SKIP LOCKED
