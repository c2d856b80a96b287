SELECT queue_id, CAST(SUM(pending) AS SIGNED) FROM counters WHERE queue_id IN (:ids) GROUP BY queue_id
