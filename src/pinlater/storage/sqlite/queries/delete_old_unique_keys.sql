DELETE FROM unique_keys WHERE (queue_id, key) IN (
  SELECT queue_id, key FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms <= ? ORDER BY until_ms LIMIT ?
)
