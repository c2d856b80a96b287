-- At most ?7 of the waiting jobs behind one key and up to another.
SELECT count(*) FROM (
  SELECT 1 FROM ready
  WHERE queue_id = ?1 AND priority = ?2 AND (run_after_ms, id) > (?3, ?4) AND (run_after_ms, id) <= (?5, ?6)
  LIMIT ?7
)
