INSERT OR IGNORE INTO expiries (expires_at_ms, id)
VALUES (?, ?)
