DELETE FROM expiries WHERE expires_at_ms = ? AND id = ?
