SELECT slot, seen_at_ms FROM servers ORDER BY slot FOR UPDATE
