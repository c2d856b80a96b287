SELECT queue_id, priority FROM counters GROUP BY queue_id, priority HAVING SUM(future) > 0
