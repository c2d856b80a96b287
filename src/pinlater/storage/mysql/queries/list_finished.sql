SELECT queue_id, priority, CAST(SUM(succeeded) AS SIGNED), CAST(SUM(failed) AS SIGNED) FROM counters
GROUP BY queue_id, priority HAVING SUM(succeeded) > 0 OR SUM(failed) > 0
