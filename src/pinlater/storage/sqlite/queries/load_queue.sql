SELECT queue_id, name, paused, config FROM queues WHERE queue_id = ?
