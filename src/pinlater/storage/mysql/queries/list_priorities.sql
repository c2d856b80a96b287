SELECT DISTINCT queue_id, priority FROM counters
