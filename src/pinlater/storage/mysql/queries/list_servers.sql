SELECT slot, incarnation, name, address, started_at_ms, seen_at_ms FROM servers ORDER BY slot
