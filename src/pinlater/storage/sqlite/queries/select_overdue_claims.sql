SELECT id FROM claims WHERE deadline_ms < ? ORDER BY deadline_ms, id LIMIT ?
