-- What other servers' writers have counted in each queue: another figure than before means that they did something there.
SELECT queue_id, priority, CAST(SUM(pending) AS SIGNED), CAST(SUM(enqueued_total) AS SIGNED), CAST(SUM(retried_total) AS SIGNED)
FROM counters WHERE writer NOT BETWEEN :own_first AND :own_last
GROUP BY queue_id, priority
