-- How many unique keys time alone will free, at most :limit, and when the last of them ends.
SELECT
  (SELECT COUNT(*) FROM (SELECT 1 FROM unique_keys WHERE until_ms > :now_ms LIMIT :limit) AS held),
  (SELECT until_ms FROM unique_keys WHERE until_ms > :now_ms ORDER BY until_ms DESC LIMIT 1)
