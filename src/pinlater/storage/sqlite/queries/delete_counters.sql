DELETE FROM counters WHERE queue_id = ?
