-- The first of those jobs that still wait, are counted as future, and that nobody else has in hand.
SELECT ready.queue_id, ready.priority, ready.run_after_ms, ready.id FROM future
STRAIGHT_JOIN ready FORCE INDEX (PRIMARY) ON ready.queue_id = future.queue_id AND ready.priority = future.priority
  AND ready.run_after_ms = future.run_after_ms AND ready.id = future.id
WHERE future.run_after_ms <= :by_ms AND ready.flags & 2
ORDER BY future.run_after_ms, future.id LIMIT :limit FOR UPDATE SKIP LOCKED
