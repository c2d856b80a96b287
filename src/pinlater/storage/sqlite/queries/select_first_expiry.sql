SELECT expires_at_ms FROM expiries ORDER BY expires_at_ms LIMIT 1
