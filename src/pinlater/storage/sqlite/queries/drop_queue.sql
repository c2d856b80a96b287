DELETE FROM queues WHERE queue_id = ?
