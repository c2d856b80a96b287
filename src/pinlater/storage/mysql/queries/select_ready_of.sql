SELECT id FROM ready WHERE queue_id = :queue_id LIMIT :limit FOR UPDATE SKIP LOCKED
