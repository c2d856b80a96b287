SELECT id FROM claims WHERE deadline_ms < :now_ms ORDER BY deadline_ms, id LIMIT :limit
