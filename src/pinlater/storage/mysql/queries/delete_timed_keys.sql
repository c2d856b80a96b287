DELETE FROM unique_keys WHERE until_ms > :now_ms ORDER BY until_ms LIMIT :limit
