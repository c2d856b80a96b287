-- When the first request key was seen and when the first timed unique key ends; NULL for none.
SELECT (SELECT seen_at_ms FROM request_keys ORDER BY seen_at_ms LIMIT 1),
  (SELECT until_ms FROM unique_keys WHERE until_ms IS NOT NULL ORDER BY until_ms LIMIT 1)
