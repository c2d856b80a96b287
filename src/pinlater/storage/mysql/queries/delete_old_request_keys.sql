DELETE FROM request_keys WHERE seen_at_ms < :before_ms ORDER BY seen_at_ms LIMIT :limit
