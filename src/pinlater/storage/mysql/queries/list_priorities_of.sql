SELECT DISTINCT priority FROM counters WHERE queue_id = :queue_id ORDER BY priority
