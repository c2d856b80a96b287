-- Waiting jobs that are counted as future though their time has come.
SELECT queue_id, priority, run_after_ms, id FROM ready
WHERE queue_id = :queue_id AND priority = :priority AND run_after_ms BETWEEN :from_ms AND :now_ms AND flags & 2
ORDER BY run_after_ms, id LIMIT :limit FOR UPDATE SKIP LOCKED
