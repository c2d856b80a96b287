SELECT priority FROM counters WHERE queue_id = ? AND pending > 0 ORDER BY priority
