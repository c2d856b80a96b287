DELETE FROM request_keys WHERE (queue_id, key) IN (
  SELECT queue_id, key FROM request_keys WHERE seen_at_ms < ? ORDER BY seen_at_ms LIMIT ?
)
