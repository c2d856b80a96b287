SELECT expires_at_ms, id FROM expiries WHERE expires_at_ms < :now_ms ORDER BY expires_at_ms, id LIMIT :limit
