UPDATE queues SET paused = ?, config = ? WHERE queue_id = ?
