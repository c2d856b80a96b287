SELECT slot, name, address, started_at_ms, seen_at_ms, CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) FROM servers ORDER BY slot
