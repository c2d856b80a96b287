-- How many unique keys time alone will free, at most ?2, and when the last of them ends.
SELECT
  (SELECT COUNT(*) FROM (SELECT 1 FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms > ?1 LIMIT ?2)),
  (SELECT until_ms FROM unique_keys WHERE until_ms IS NOT NULL AND until_ms > ?1 ORDER BY until_ms DESC LIMIT 1)
