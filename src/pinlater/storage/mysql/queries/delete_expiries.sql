DELETE FROM expiries WHERE (expires_at_ms, id) IN (:keys)
